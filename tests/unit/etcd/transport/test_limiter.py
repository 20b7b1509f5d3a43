from __future__ import annotations

import itertools
from contextlib import suppress
from functools import partial

import pytest
from coordlock_etcd.transport.limiter import Limiter
from hypothesis import given
from hypothesis import strategies as st

from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise, failed, resolved
from tests.unit.signals import struck

MOST = 3


class Service:
    """Sent to it, requests wait for their answer; or they fail at once."""

    def __init__(self) -> None:
        self.limiter: Limiter = Limiter(MOST)
        self.sent: list[int] = []
        self.under_way: dict[int, Promise[int]] = {}
        self.answers: list[Promise[int]] = []
        self.refuses = False

    def ask(self) -> None:
        self.answers.append(self.limiter.submit(partial(self.send, len(self.answers))))

    def send(self, number: int) -> Promise[int]:
        self.sent.append(number)
        if self.refuses:
            return failed(BackendUnavailable("a", "it was refused"))
        promise = self.under_way[number] = Promise()
        return promise

    def answer(self, number: int) -> None:
        self.under_way.pop(number).resolve(number)


@given(st.lists(st.integers(0, MOST) | st.none(), max_size=60))
def test_a_few_are_under_way_and_the_others_come_in_order(script: list[int | None]) -> None:
    service = Service()
    for step in script:
        if step is None or not service.under_way:
            service.ask()
        else:
            under_way = sorted(service.under_way)
            service.answer(under_way[step % len(under_way)])
        asked = len(service.answers)
        answered = sum(one.done() for one in service.answers)
        assert service.sent == [*range(len(service.sent))]
        assert len(service.under_way) == min(MOST, asked - answered)
    for number in range(len(service.answers)):
        if number in service.under_way:
            service.answer(number)
    while service.under_way:
        service.answer(min(service.under_way))
    assert [one.result(0) for one in service.answers] == [*range(len(service.answers))]


def test_thousands_that_fail_at_once_leave_no_turn_behind() -> None:
    service = Service()
    for _ in range(10_000):
        service.ask()
    service.refuses = True
    service.answer(0)
    assert len(service.sent) == 10_000
    assert all(isinstance(one.exception(0), BackendUnavailable) for one in service.answers[MOST:])
    service.refuses = False
    for _ in range(10):
        service.ask()
    for number in (1, 2):
        service.answer(number)
    assert len(service.under_way) == MOST


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_request_that_cannot_be_sent_fails_and_passes_its_turn_on(
    error: type[BaseException],
) -> None:
    limiter: Limiter = Limiter(1)
    first: Promise[int] = Promise()
    third: Promise[int] = Promise()

    def refuse() -> Promise[int]:
        raise error

    limiter.submit(lambda: first)
    refused, waits = limiter.submit(refuse), limiter.submit(lambda: third)
    with suppress(error):
        first.resolve(1)
    assert isinstance(refused.exception(0), BackendUnavailable)
    third.resolve(3)
    assert waits.result(0) == 3


class Alarm(Exception):
    """What a signal handler raises where the program goes on, such as a soft time limit."""


def test_a_signal_handler_that_raises_as_a_turn_is_taken_reaches_its_caller_and_costs_no_turn() -> (
    None
):
    """The fault: the turn was never given back, and after 16 of them nobody entered the queue."""
    for number in itertools.count(1):
        limiter: Limiter = Limiter(1)
        first: Promise[int] = Promise()
        limiter.submit(lambda: first)  # noqa: B023
        other = limiter.submit(lambda: resolved(2))

        def act() -> None:
            first.resolve(1)  # noqa: B023
            limiter.submit(lambda: resolved(3))  # noqa: B023

        reached = list[Alarm]()

        def caught() -> None:
            try:
                act()
            except Alarm as alarm:
                reached.append(alarm)  # noqa: B023
                raise

        place = struck(caught, number, Alarm)
        first.resolve(1)
        assert limiter.submit(lambda: resolved(4)).result(0) == 4, place
        assert other.done(), place
        assert not limiter._sent, place
        if not place:
            break
        if place.partition(":")[0].endswith("limiter.py"):
            assert reached, place
    assert number > 20


def test_who_comes_while_a_turn_is_passed_on_waits_behind_the_others() -> None:
    limiter: Limiter = Limiter(1)
    first: Promise[int] = Promise()
    sent: list[str] = []

    def send(name: str) -> Promise[int]:
        sent.append(name)
        if name == "second":
            limiter.submit(partial(send, "newcomer"))
        return Promise()

    limiter.submit(lambda: first)
    for name in ("second", "third"):
        limiter.submit(partial(send, name))
    first.resolve(1)
    assert sent == ["second"]
