"""Redlock: what the answers of a part of the servers prove."""

from __future__ import annotations

from typing import Any

import pytest
from coordlock_redis.redlock import RedlockBackend
from coordlock_redis.redlock.nodes import Runs

from coordlock.errors import AuthenticationFailed, BackendError, BackendUnavailable
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.promise import Promise


class Node:
    """Keeps what it is asked, for the test to answer."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def ask(self, request: Any) -> Promise[Any]:
        self.asked.append(request)
        promise: Promise[Any] = request.promise
        return promise


class Clock:
    time = 100.0

    def now(self) -> float:
        return self.time


def voting(clock: Clock, nodes: list[Node]) -> RedlockBackend:
    """A backend with an open session on three ``nodes``."""
    backend = RedlockBackend([], b"", 10.0, 0.0, SystemTimers("test"))
    for name, value in (("_nodes", nodes), ("_servers", nodes), ("_majority", 2)):
        object.__setattr__(backend, name, value)
    object.__setattr__(backend, "_clock", clock)
    backend._session.current = "s"
    return backend


ENTRY = Entry("queue", "id", Mode.EX, Owner("host", 1))


def vote(node: Node) -> None:
    """Let ``node`` answer its first request, an acquire, with its vote."""
    node.asked[0].promise.resolve(node.asked[0].arguments[1])


def test_a_heartbeat_that_not_every_voter_has_counts_from_the_request() -> None:
    clock = Clock()
    a, b, c = nodes = [Node(), Node(), Node()]
    backend = voting(clock, nodes)
    acquired = backend.enqueue([ENTRY])
    vote(a)
    c.asked[0].promise.resolve(b"rival r ")
    clock.time += 0.9  # the lock's keys may expire at 110.0

    beaten = backend.heartbeat()
    a.asked[1].promise.resolve([1])
    c.asked[1].promise.resolve([0])
    assert beaten.done()

    vote(b)  # and it never has the heartbeat
    assert acquired.result()[0].contenders[0].id == "id"
    assert clock.time + beaten.result() < 110.0


@pytest.mark.parametrize(
    ("answers", "was_held"), [([1, 0, None], True), ([0, 0, None], False), ([1, 1, None], True)]
)
def test_a_release_says_lost_only_if_no_majority_can_have_had_the_lock(
    answers: list[int | None], was_held: bool
) -> None:
    nodes = [Node(), Node(), Node()]
    withdrawn = voting(Clock(), nodes).withdraw([ENTRY])
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
    nodes = [Node(), Node(), Node()]
    acquired = voting(Clock(), nodes).enqueue([ENTRY])
    voter, *failing = (node.asked[0].promise for node in nodes)
    errors: list[BackendError] = [AuthenticationFailed("redis", "no")] * refusals
    errors += [BackendUnavailable("redis", "silent")] * (2 - refusals)
    for promise, error in zip(failing, errors, strict=True):
        promise.fail(error)
    voter.resolve(nodes[0].asked[0].arguments[1])
    assert type(acquired.exception()) is expected


def test_two_addresses_may_change_places() -> None:
    runs = Runs()
    assert [runs.claim("a", b"1"), runs.claim("b", b"2")] == [None, None]
    assert runs.claim("b", b"1") == "a"
    assert [runs.claim("a", b"2"), runs.claim("b", b"1")] == [None, None]


def test_an_acquire_that_hangs_costs_the_session_little_and_is_no_lock_later() -> None:
    """As where the names of two servers take long to look up."""
    clock = Clock()
    a, b, c = nodes = [Node(), Node(), Node()]
    backend = voting(clock, nodes)
    acquired = backend.enqueue([ENTRY])
    vote(a)
    for passed in (4.0, 9.0, 20.0):
        clock.time = 100.0 + passed
        beaten = backend.heartbeat()
        for node in (a, b):
            node.asked[-1].promise.resolve([1])
        assert beaten.result() > 10.0 / 2 - 0.2
    vote(b)
    c.asked[0].promise.fail(BackendUnavailable("redis", "silent"))
    assert isinstance(acquired.exception(), BackendUnavailable)
