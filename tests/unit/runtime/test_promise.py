from __future__ import annotations

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from coordlock.runtime.driver import completion
from coordlock.runtime.log import flush
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import Promise, all_of, copied, failed, resolved, settled
from tests.unit.signals import struck


class Alarm(Exception):
    """What a signal handler raises where the program goes on."""


def test_only_the_first_outcome_counts() -> None:
    promise: Promise[int] = Promise()
    assert promise.resolve(1) is True
    assert promise.resolve(2) is False
    assert promise.fail(KeyError()) is False
    assert promise.result(0) == 1


def test_of_many_threads_one_resolves_it() -> None:
    for _ in range(20):
        promise: Promise[int] = Promise()
        start = threading.Barrier(4)

        def resolve(
            number: int, promise: Promise[int] = promise, start: threading.Barrier = start
        ) -> bool:
            start.wait()
            return promise.resolve(number)

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(resolve, range(4)))
        assert won.count(True) == 1
        assert promise.result(0) == won.index(True)


def test_callbacks_are_called_in_order_and_the_error_of_one_stops_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_own in (False, True):
        monkeypatch.setattr(THREAD, "must_not_wait", is_own)
        promise: Promise[int] = Promise()
        called: list[str] = []
        promise.add_done_callback(lambda _: called.append("first"))  # noqa: B023
        promise.add_done_callback(lambda _: 1 / 0)
        promise.add_done_callback(lambda one: called.append(f"second: {one.result(0)}"))  # noqa: B023
        with nullcontext() if is_own else pytest.raises(ZeroDivisionError):
            promise.resolve(7)
        promise.add_done_callback(lambda _: called.append("at once"))  # noqa: B023
        assert called == ["first", "second: 7", "at once"]
        assert flush(30)
        assert ("ZeroDivisionError" in caplog.text) is is_own


def test_wherever_a_signal_handler_raises_a_set_is_complete_and_the_error_is_the_callers() -> None:
    """The fault: the error was logged and lost, and a waiter waited for a set for ever."""
    for number in itertools.count(1):
        first, second, third = Promise[int](), Promise[int](), resolved(3)
        heard: list[Alarm] = []

        def complete() -> None:
            try:
                together.append(all_of([first, second, third]))  # noqa: B023
                first.resolve(1)  # noqa: B023
                second.resolve(2)  # noqa: B023
            except Alarm as alarm:
                heard.append(alarm)  # noqa: B023

        together: list[Promise[tuple[int, ...]]] = []
        place = struck(complete, number, Alarm)
        assert bool(heard) is bool(place), place
        first.resolve(1)
        second.resolve(2)
        assert all(one.result(0) == (1, 2, 3) for one in together), place
        if not place:
            break
    assert number > 60


def test_who_comes_while_others_are_called_is_called_himself_and_nobody_else() -> None:
    promise: Promise[int] = Promise()
    called: list[str] = []

    def first(_: object) -> None:
        promise.add_done_callback(lambda _: called.append("within the first"))
        called.append("first")

    promise.add_done_callback(first)
    promise.add_done_callback(lambda _: called.append("second"))
    promise.resolve(1)
    assert called == ["within the first", "first", "second"]


def race(promise: Promise[int]) -> int:
    """How many of 80 callbacks are called when four threads add them while another resolves."""
    called: list[object] = []
    start = threading.Barrier(5)

    def add() -> None:
        start.wait()
        for _ in range(20):
            promise.add_done_callback(called.append)

    def resolve() -> None:
        start.wait()
        promise.resolve(1)

    with ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(one) for one in (add, add, add, add, resolve)]:
            done.result(30)
    return len(called)


def test_callbacks_that_race_with_the_completion_are_each_called_once() -> None:
    assert {race(Promise()) for _ in range(50)} == {80}


def test_a_result_is_waited_for() -> None:
    promise: Promise[int] = Promise()
    with pytest.raises(TimeoutError):
        promise.result(0.01)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(promise.result, 30)
        promise.resolve(7)
        assert waiting.result(30) == 7


def test_a_cancelled_waiter_leaves_the_promise_alone() -> None:
    promise: Promise[int] = Promise()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(completion(promise), 0.01)

    asyncio.run(main())
    assert promise.resolve(1)


def test_kept_and_broken_promises() -> None:
    assert resolved(1).result(0) == 1
    assert isinstance(failed(KeyError()).exception(0), KeyError)


def test_settled_is_kept_however_the_other_ends() -> None:
    one: Promise[int] = Promise()
    other: Promise[int] = Promise()
    waiting = [settled(one), settled(other)]
    assert not any(promise.done() for promise in waiting)
    one.resolve(1)
    other.fail(KeyError())
    assert [promise.result(0) for promise in waiting] == [None, None]


def test_a_copy_takes_the_outcome_unless_something_came_first() -> None:
    one: Promise[int] = Promise()
    first, second = copied(one), copied(one)
    assert second.fail(KeyError())
    one.resolve(7)
    assert first.result(0) == 7
    assert isinstance(second.exception(0), KeyError)
    assert isinstance(copied(failed(ValueError())).exception(0), ValueError)


def test_a_promise_that_counts_again_after_a_signal_completes_no_set() -> None:
    """The fault: the set then waited for the others in the thread that completes promises."""
    first, second = Promise[int](), Promise[int]()
    together = all_of([first, second])
    [arrived] = first._callbacks
    first.resolve(1)
    arrived(first)
    assert not together.done()
    second.resolve(2)
    assert together.result(0) == (1, 2)
