"""Lists of a queue that several share, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_zookeeper import queues
from coordlock_zookeeper.queues import ChildLists
from coordlock_zookeeper.requests import Requests
from kazoo.exceptions import ConnectionLoss

from coordlock.errors import BackendUnavailable
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


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def lists(client: Client) -> ChildLists:
    return ChildLists(Requests(client))


def test_a_list_that_was_sent_before_one_asks_is_not_good_enough(
    client: Client, lists: ChildLists
) -> None:
    early = lists.ask("/q")
    late = [lists.ask("/q") for _ in range(100)]
    assert len(client.asked) == 1
    client.answer("a-0000000000")
    assert early.result(0).children == ["a-0000000000"]
    assert not any(one.done() for one in late)
    client.answer("b-0000000012", "a-0000000001", "no contender")
    assert client.asked == []
    assert all(one.result(0) is late[0].result(0) for one in late)
    assert late[0].result(0).zxid == 7
    assert late[0].result(0).positions == [(1, "a-0000000001"), (12, "b-0000000012")]


def test_without_a_connection_all_are_refused_each_with_an_error_of_its_own(
    client: Client, lists: ChildLists
) -> None:
    asked = [lists.ask("/q") for _ in range(3)]
    for _ in range(2):  # also the list that the others share, which kazoo does not send
        client.refuse(ConnectionLoss())
    errors = [one.exception(0) for one in asked]
    assert all(isinstance(error, BackendUnavailable) for error in errors)
    assert len({id(error) for error in errors}) == 3
    lists.ask("/q")
    assert len(client.asked) == 1, "a new connection asks anew"


def test_ctrl_c_at_any_moment_keeps_no_later_request_waiting(
    client: Client, lists: ChildLists
) -> None:
    def act() -> None:
        lists.ask("/q"), lists.ask("/q")
        client.answer()  # now the second one is sent

    for strike in moments(10, queues):
        strike(act)
        after = [lists.ask("/q") for _ in range(2)]
        while client.asked:
            client.answer("a-0000000000")
        assert all(one.result(0).children == ["a-0000000000"] for one in after)
