"""Redlock: what the answers of a part of the servers prove."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_redis.redlock import RedlockBackend
from coordlock_redis.redlock.nodes import Node

from coordlock.errors import AuthenticationFailed, BackendError, BackendUnavailable
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner
from coordlock.runtime.clock import SYSTEM_CLOCK, SystemTimers
from coordlock.runtime.promise import Promise


class Asked:
    """Keeps what it is asked, for the test to answer."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def ask(self, request: Any) -> Promise[Any]:
        self.asked.append(request)
        promise: Promise[Any] = request.promise
        return promise

    def vote(self, number: int) -> None:
        """Answer that request, an acquire, with a vote."""
        request = self.asked[number]
        request.promise.resolve(request.arguments[1])


def voting(nodes: list[Asked]) -> RedlockBackend:
    """A backend with an open session on three ``nodes``."""
    backend = RedlockBackend([], b"", 10.0, 0.0, SystemTimers("test"))
    for name, value in (("_nodes", nodes), ("_servers", nodes), ("_majority", 2)):
        object.__setattr__(backend, name, value)
    backend._session.current = "s"
    return backend


ENTRY = Entry("queue", "id", Mode.EX, Owner("host", 1))


def test_votes_that_a_heartbeat_may_not_have_extended_are_asked_for_again() -> None:
    """Else the session would outlive them, where an acquire takes long."""
    a, b, c = nodes = [Asked(), Asked(), Asked()]
    backend = voting(nodes)
    acquired = backend.enqueue([ENTRY])
    a.vote(0)
    beaten = backend.heartbeat()
    for node in (a, c):
        node.asked[1].promise.resolve([])
    assert beaten.done()
    b.vote(0)
    assert not acquired.done()
    for node in (a, c):
        node.vote(2)
    assert acquired.result()[0].contenders[0].id == "id"
    backend.heartbeat()
    assert a.asked[3].arguments[2] == a.asked[2].arguments[1]  # its value


@pytest.mark.parametrize(
    ("answers", "was_held"), [([1, 0, None], True), ([0, 0, None], False), ([1, 1, None], True)]
)
def test_a_release_says_lost_only_if_no_majority_can_have_had_the_lock(
    answers: list[int | None], was_held: bool
) -> None:
    nodes = [Asked(), Asked(), Asked()]
    withdrawn = voting(nodes).withdraw([ENTRY])
    for node, answer in zip(nodes, answers, strict=True):
        promise = node.asked[0].promise
        if answer is None:
            promise.fail(BackendUnavailable("redlock", "silent"))
        else:
            promise.resolve(answer)
    assert withdrawn.result() is was_held


@pytest.mark.parametrize(
    ("refusals", "expected"), [(1, BackendUnavailable), (2, AuthenticationFailed)]
)
def test_a_refusal_ends_an_acquire_only_if_the_others_are_no_majority(
    refusals: int, expected: type[BackendError]
) -> None:
    nodes = [Asked(), Asked(), Asked()]
    acquired = voting(nodes).enqueue([ENTRY])
    voter, *failing = (node.asked[0].promise for node in nodes)
    errors: list[BackendError] = [AuthenticationFailed("redis", "no")] * refusals
    errors += [BackendUnavailable("redis", "silent")] * (2 - refusals)
    for promise, error in zip(failing, errors, strict=True):
        promise.fail(error)
    voter.resolve(nodes[0].asked[0].arguments[1])
    assert type(acquired.exception()) is expected


def test_two_addresses_may_change_places() -> None:
    nodes: list[Node] = []
    for name in ("a", "b"):
        nodes.append(Node(b"", 1.0, SYSTEM_CLOCK, b"", [(name, 1)], nodes=nodes))

    def reaches(number: int, run: bytes) -> bool:
        connection: Any = SimpleNamespace(run=run, is_cluster=False, fields={})
        try:
            nodes[number]._check(connection)
        except BackendError:
            return False
        return True

    assert [reaches(0, b"1"), reaches(1, b"2"), reaches(1, b"1")] == [True, True, False]
    assert [reaches(0, b"2"), reaches(1, b"1")] == [True, True]
