from __future__ import annotations

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import pytest

from coordlock.runtime.driver import completion
from coordlock.runtime.log import flush
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import (
    Promise,
    all_of,
    copied,
    failed,
    in_thread,
    resolved,
    settled,
)
from coordlock.testing.waiting import eventually
from tests.unit.signals import interrupted, struck


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


@pytest.mark.parametrize("is_own", [False, True])
def test_callbacks_are_called_in_order_and_those_that_fail_are_logged_and_stop_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    """The fault: a thousand that failed exceeded Python's limit of calls, and others were lost."""
    monkeypatch.setattr(THREAD, "must_not_wait", is_own)
    monkeypatch.setattr("coordlock.runtime.promise.log.exception", logged := Mock())
    promise: Promise[int] = Promise()
    called: list[str] = []
    promise.add_done_callback(lambda _: called.append("first"))
    for _ in range(1500):
        promise.add_done_callback(lambda _: 1 / 0)
    promise.add_done_callback(lambda one: called.append(f"second: {one.result(0)}"))
    promise.resolve(7)
    promise.add_done_callback(lambda _: called.append("at once"))
    promise.add_done_callback(lambda _: 1 / 0)
    assert called == ["first", "second: 7", "at once"]
    assert logged.call_count == 1501


def test_no_callback_is_lost_where_ctrl_c_strikes_as_a_function_returns() -> None:
    """The fault: one that had just been taken out of the list was never called."""
    for number in itertools.count(1):
        promise: Promise[int] = Promise()
        called: list[int] = []
        for name in range(3):
            promise.add_done_callback(partial(lambda name, _: called.append(name), name))  # noqa: B023
        came = interrupted(lambda: promise.resolve(1), number)  # noqa: B023
        promise.resolve(1)
        assert set(called) == {0, 1, 2}, number
        if not came:
            break
    assert number > 5


def test_the_error_of_a_callback_of_what_a_thread_does_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for outcome in (lambda: 1, lambda: 1 / 0):
        begun = threading.Event()
        promise = in_thread("a thread", lambda: (begun.wait(30), outcome()))  # noqa: B023
        promise.add_done_callback(lambda _: dict[str, int]()["no such key"])
        begun.set()
        eventually(lambda: flush(30) and caplog.text.count("a callback failed") > 0)
        caplog.clear()


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
