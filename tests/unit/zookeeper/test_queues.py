"""Lists of a queue that several share, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_zookeeper import queues
from coordlock_zookeeper.nodes import Layout
from coordlock_zookeeper.queues import Listed, QueueReader
from coordlock_zookeeper.requests import Requests
from kazoo.exceptions import ConnectionLoss

from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise
from tests.unit.signals import moments


class Client:
    """Requests for lists, answered one by one when the test says so."""

    chroot = ""
    last_zxid = 8

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.interrupts: list[BaseException] = []

    def _call(self, request: Any, answer: Any) -> None:
        if self.interrupts:
            raise self.interrupts.pop()
        self.asked.append((request.path, answer))

    def answer(self, *children: str) -> None:
        self.asked.pop(0)[1].set((list(children), SimpleNamespace(pzxid=7)))

    def refuse(self, error: Exception) -> None:
        self.asked.pop(0)[1].set_exception(error)


def names(asked: Promise[Listed]) -> list[str]:
    contenders, _ = asked.result(0)
    return [one.key.removeprefix("/q/") for one in contenders]


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def lists(client: Client) -> QueueReader:
    return QueueReader(Requests(client), Layout(""))


def test_a_list_that_was_sent_before_one_asks_is_not_good_enough(
    client: Client, lists: QueueReader
) -> None:
    early = lists.listed("/q")
    late = [lists.listed("/q") for _ in range(100)]
    assert len(client.asked) == 1
    client.answer("a-0000000000")
    assert names(early) == ["a-0000000000"]
    assert not any(one.done() for one in late)
    client.answer("b-0000000012", "a-0000000001", "no contender")
    assert client.asked == []
    assert all(one.result(0) is late[0].result(0) for one in late)
    assert late[0].result(0)[1] == 7
    assert names(late[0]) == ["a-0000000001", "b-0000000012"]


def test_without_a_connection_all_are_refused_each_with_an_error_of_its_own(
    client: Client, lists: QueueReader
) -> None:
    asked = [lists.listed("/q") for _ in range(3)]
    for _ in range(2):  # also the list that the others share, which kazoo does not send
        client.refuse(ConnectionLoss())
    errors = [one.exception(0) for one in asked]
    assert all(isinstance(error, BackendUnavailable) for error in errors)
    assert len({id(error) for error in errors}) == 3
    lists.listed("/q")
    assert len(client.asked) == 1, "a new connection asks anew"


def test_ctrl_c_at_any_moment_keeps_no_later_request_waiting(
    client: Client, lists: QueueReader
) -> None:
    def act() -> None:
        lists.listed("/q"), lists.listed("/q")
        client.answer()  # now the second one is sent

    for strike in moments(5, queues):
        strike(act)
        after = [lists.listed("/q") for _ in range(2)]
        while client.asked:
            client.answer("a-0000000000")
        assert all(names(one) == ["a-0000000000"] for one in after)
