"""Watches that come while the client looks for all that it watches."""

from __future__ import annotations

import threading
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
        return [list(request.arguments[1::3]) for request in self.requests]

    def answer(self, number: int, revision: int, *found: int) -> None:
        request = self.requests[number]
        request.promise.resolve(request.read([b"ok", revision, *found]))

    def fail(self, number: int) -> None:
        self.requests[number].promise.fail(BackendUnavailable("redis", "lost"))


def contender(id: str, order: int = 5, session: str = "other-1") -> Contender:
    return Contender(
        id=id,
        key=f"a/{id}",
        claim=Mode.EX,
        order=order,
        token=order,
        session=session,
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
    watches = Watches(asked, "own-1".__eq__, timers, threading.RLock())
    yield watches
    watches.close()
    timers.close()


def watch(
    watches: Watches, one: Contender, revision: int, waiters: Sequence[Contender] = ()
) -> list[Departure]:
    told: list[Departure] = []
    watches.watch(one, revision, told.append, waiters, changes=False)
    return told


def begin(watches: Watches) -> None:
    """A session begins at revision 1, while messages come."""
    watches.on_subscribed()
    watches.opened(1)


def waiting(watches: Watches, revision: int) -> tuple[list[Departure], list[Departure]]:
    """What an own waiter and its blocker, which were seen at ``revision``, report."""
    waiter, blocker = contender("waiter", 6, "own-1"), contender("blocker")
    watches.arranged(blocker, 10**9)
    return watch(watches, waiter, revision), watch(watches, blocker, revision, [waiter])


def test_what_a_script_has_put_under_watch_is_not_asked_for(watches: Watches, asked: Asked) -> None:
    begin(watches)
    _, told = waiting(watches, 2)
    watches.on_left("blocker", 5, 3, was_first=True)
    assert told == [Departure.FIRST]
    assert asked.ids == []


def test_what_a_script_has_put_under_watch_is_asked_for_by_the_next_session(
    watches: Watches, asked: Asked
) -> None:
    """Redis drops the inboxes of clients without a session."""
    begin(watches)
    watches.arranged(contender("blocker"), 10**9)
    watches.reset()
    watches.opened(2)
    watch(watches, contender("blocker"), 3)
    assert asked.ids == [["blocker"]]


def test_a_departure_before_the_watch_is_reported_at_once(watches: Watches, asked: Asked) -> None:
    begin(watches)
    watches.on_left("blocker", 5, 3, was_first=False)
    _, told = waiting(watches, 2)
    assert told == [Departure.IN_ORDER]
    assert asked.ids == []


def test_a_watch_that_comes_in_a_gap_is_asked_for_when_that_is_over(
    watches: Watches, asked: Asked
) -> None:
    begin(watches)
    watches.on_gap()
    told = watch(watches, contender("a"), 10)
    assert asked.ids == []
    watches.on_subscribed()
    assert asked.ids == [["a"]]
    asked.answer(0, 20, 0, 0)
    assert told == [Departure.UNORDERED]


def test_an_answer_from_before_a_gap_proves_nothing_of_the_time_after_it(
    watches: Watches, asked: Asked
) -> None:
    watches.on_subscribed()
    _, told = waiting(watches, 10)
    watches.on_gap()
    watches.on_subscribed()
    for number in range(2):
        asked.answer(number, 20, 1, 10**9)
    watches.on_left("blocker", 5, 21, was_first=True)
    assert told == [Departure.UNORDERED]


def test_after_a_gap_a_departure_proves_something_once_the_waiter_has_been_found(
    watches: Watches, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlock_redis.watches.LOOK_BATCH", 1)
    monkeypatch.setattr("coordlock_redis.watches.RELOOK_DELAY_S", 0.01)
    begin(watches)
    evicted, told = waiting(watches, 10)
    watches.on_gap()
    watches.on_subscribed()
    assert asked.ids == [["waiter"], ["blocker"]]
    asked.fail(0)
    asked.answer(1, 20, 1, 10**9)
    watches.on_left("blocker", 5, 21, was_first=True)
    assert told == [Departure.UNORDERED]  # the waiter may have been evicted in the gap
    eventually(lambda: asked.ids[2:] == [["waiter"]])
    asked.answer(2, 22, 0, 0)
    assert evicted == [Departure.UNORDERED]
    watches.on_gap()
    waiter, blocker = contender("next", 8, "own-1"), contender("other", 7)
    watch(watches, waiter, 30)
    told = watch(watches, blocker, 30, [waiter])
    watches.on_subscribed()
    asked.answer(3, 31, 1, 0)
    watches.on_left("other", 7, 32, was_first=True)
    assert told == [Departure.FIRST]


def test_what_was_read_before_a_departure_that_is_forgotten_is_looked_for(
    watches: Watches, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlock_redis.watches.MAX_REMEMBERED", 2)
    begin(watches)
    for number in range(3):
        watches.on_left(str(number), 5, 10 + number, was_first=True)
    assert watch(watches, contender("1"), 9) == [Departure.UNORDERED]
    assert asked.ids == []
    told = watch(watches, contender("0"), 9)
    assert asked.ids == [["0"]]
    asked.answer(0, 20, 0, 0)
    assert told == [Departure.UNORDERED]
