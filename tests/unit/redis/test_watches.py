"""Watches that come while the client looks for all that it watches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from coordlock_redis.requests import Request
from coordlock_redis.watches import Watches

from coordlock.backend import Departure
from coordlock.errors import BackendUnavailable
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Owner
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.promise import Promise
from coordlock.testing.waiting import eventually


class Asked:
    """What was asked, to be answered by the test."""

    def __init__(self) -> None:
        self.requests: list[Request[Any]] = []

    def __call__(self, request: Request[Any]) -> Promise[Any]:
        self.requests.append(request)
        return request.promise

    @property
    def ids(self) -> list[list[Any]]:
        return [list(request.arguments[1::4]) for request in self.requests]

    def answer(self, number: int, revision: int, *found: int) -> None:
        request = self.requests[number]
        request.promise.resolve(request.read([b"ok", revision, *found]))

    def fail(self, number: int) -> None:
        self.requests[number].promise.fail(BackendUnavailable("redis", "lost"))


def contender(id: str, order: int = 5) -> Contender:
    return Contender(
        id=id,
        key=f"a/{id}",
        claim=Mode.EX,
        order=order,
        token=order,
        session="other-1",
        owner=Owner.decode(b""),
        value=b"",
        version=1,
    )


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def watches(asked: Asked) -> Iterator[Watches]:
    timers = SystemTimers()
    watches = Watches(asked, lambda session: False, timers)
    yield watches
    watches.close()
    timers.close()


def watch(
    watches: Watches, one: Contender, revision: int, waiters: Sequence[Contender] = ()
) -> list[Departure]:
    told: list[Departure] = []
    watches.watch(one, revision, told.append, waiters, changes=False)
    return told


def test_a_watch_that_comes_during_a_look_for_all_is_looked_for_itself(
    watches: Watches, asked: Asked
) -> None:
    first, second = contender("a"), contender("b")
    watch(watches, first, 10)
    told = watch(watches, second, 10)  # it has left, and the message was lost in the gap before
    assert asked.ids == [["a"], ["b"]]
    asked.answer(0, 20, 1, 10**9)
    asked.answer(1, 21, 0, 0)
    assert told == [Departure.UNORDERED]


def test_a_watch_that_comes_while_nothing_is_heard_is_looked_for_when_the_news_are_back(
    watches: Watches, asked: Asked
) -> None:
    watches.opened(1)
    watches.news_stopped()
    told = watch(watches, contender("a"), 10)
    assert asked.ids == []
    watches.news_came_back()
    assert asked.ids == [["a"]]
    asked.answer(0, 20, 0, 0)
    assert told == [Departure.UNORDERED]


def test_the_end_of_a_session_ends_a_look_for_all(watches: Watches, asked: Asked) -> None:
    watch(watches, contender("a"), 10)
    watches.reset()
    watch(watches, contender("b"), 10)
    assert asked.ids == [["a"], ["b"]]


def test_a_look_before_a_gap_says_nothing_of_the_time_after_it(
    watches: Watches, asked: Asked
) -> None:
    watch(watches, contender("a"), 10)
    watches.news_stopped()
    watches.news_came_back()
    asked.answer(0, 20, 1, 10**9)
    watch(watches, contender("b"), 30)
    assert asked.ids == [["a"], ["a"], ["b"]]


def test_in_order_is_restored_when_all_parts_of_the_look_after_a_gap_are_answered(
    watches: Watches, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlock_redis.watches._AT_ONCE", 1)
    monkeypatch.setattr("coordlock_redis.watches._PAUSE", 0.01)
    watches.opened(1)
    waiter, blocker = contender("waiter", 6), contender("blocker")
    evicted, told = watch(watches, waiter, 10), watch(watches, blocker, 10, [waiter])
    asked.answer(0, 11, 1, 10**9)
    asked.answer(1, 11, 1, 10**9)
    watches.news_stopped()
    watches.news_came_back()
    assert asked.ids[2:] == [["waiter"], ["blocker"]]
    asked.fail(2)
    asked.answer(3, 20, 1, 10**9)
    watches.told("blocker", 5, 21, was_first=True)
    assert told == [Departure.UNORDERED]  # the waiter may have been evicted in the gap
    eventually(lambda: asked.ids[4:] == [["waiter"]])
    asked.answer(4, 22, 0, 0)
    assert evicted == [Departure.UNORDERED]
    told = watch(watches, contender("other"), 22, [contender("next", 6)])
    watches.told("other", 5, 23, was_first=True)
    assert told == [Departure.FIRST]


def test_what_was_read_before_a_departure_that_is_forgotten_is_looked_for(
    watches: Watches, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlock_redis.watches._REMEMBERED", 2)
    watches.opened(1)
    for number in range(3):
        one = contender(str(number))
        watches.arranged(one, 10**9)
        watches.told(one.id, one.order, 10 + number, was_first=True)
    assert watch(watches, contender("1"), 9) == [Departure.UNORDERED]
    assert asked.ids == []
    told = watch(watches, contender("0"), 9)
    assert asked.ids == [["0"]]
    asked.answer(0, 20, 0, 0)
    assert told == [Departure.UNORDERED]
