from __future__ import annotations

from concurrent.futures import Future
from functools import partial

from coordlock_etcd.turns import Turns
from hypothesis import given
from hypothesis import strategies as st

from coordlock.errors import BackendUnavailable
from coordlock.promise import Promise, failed

MOST = 3


class Service:
    """Sent to it, requests wait for their answer; or they fail at once."""

    def __init__(self) -> None:
        self.turns: Turns[int] = Turns(MOST)
        self.sent: list[int] = []
        self.under_way: dict[int, Promise[int]] = {}
        self.answers: list[Future[int]] = []
        self.refuses = False

    def ask(self) -> None:
        self.answers.append(self.turns.take(partial(self.send, len(self.answers))))

    def send(self, number: int) -> Future[int]:
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


def test_an_answer_whose_callback_was_interrupted_gives_its_turn_back() -> None:
    service = Service()
    for _ in range(MOST):
        service.ask()
    # The fault: Ctrl-C in the thread that was to call it.
    service.under_way[0]._callbacks.clear()
    service.answer(0)
    service.ask()
    assert service.sent == [*range(MOST + 1)]
