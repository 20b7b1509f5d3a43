from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from coordlock_memory import VirtualTime, VirtualTimers

from coordlock.errors import ClientClosed
from coordlock.runtime.clock import SYSTEM_CLOCK, SystemTimers, sleep, within
from coordlock.runtime.log import flush
from coordlock.runtime.promise import Promise, resolved
from coordlock.testing.waiting import eventually


@pytest.fixture
def timers(no_leaks: None) -> Iterator[SystemTimers]:
    timers = SystemTimers("test-timers")
    yield timers
    timers.close()


def now() -> float:
    return SYSTEM_CLOCK.now()


def test_the_clock_is_monotonic_and_counts_a_suspend() -> None:
    before = SYSTEM_CLOCK.now()
    assert SYSTEM_CLOCK.now() >= before
    boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    assert abs(time.clock_gettime(boot) - SYSTEM_CLOCK.now()) < 30


def test_timers_start_no_thread_before_they_are_used(timers: SystemTimers) -> None:
    assert "test-timers" not in [thread.name for thread in threading.enumerate()]


def test_timers_fire_in_the_order_of_their_times(timers: SystemTimers) -> None:
    fired: list[int] = []
    start = now() + 0.05
    for number in (3, 1, 2, 0):
        timers.call_at(start + number * 0.001, partial(fired.append, number))
    eventually(lambda: len(fired) == 4)
    assert fired == [0, 1, 2, 3]


def test_a_timer_never_fires_before_its_time(timers: SystemTimers) -> None:
    fired: list[float] = []
    due = now() + 0.05
    timers.call_at(due, lambda: fired.append(now()))
    eventually(lambda: fired)
    assert fired[0] >= due


def test_without_a_thread_what_is_due_is_called_at_once_and_the_rest_once_there_is_one(
    timers: SystemTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    fired: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        timers.call_at(now() + 0.01, lambda: fired.append("later"))
        timers.call_at(now(), lambda: fired.append("now"))
        assert fired == ["now"]
    timers.call_at(now() + 3600, lambda: None)
    eventually(lambda: fired == ["now", "later"])


def test_a_nearer_timer_overtakes_a_distant_one(timers: SystemTimers) -> None:
    fired = threading.Event()
    timers.call_at(now() + 3600, lambda: None)
    timers.call_at(now(), fired.set)
    assert fired.wait(30)


def test_a_cancelled_timer_does_not_fire(timers: SystemTimers) -> None:
    fired: list[str] = []
    done = threading.Event()
    timer = timers.call_at(now() + 0.02, lambda: fired.append("cancelled"))
    timers.call_at(now() + 0.03, done.set)
    timer.cancel()
    timer.cancel()
    assert done.wait(30)
    assert fired == []


def test_a_timer_before_one_that_was_cancelled_fires_in_time(timers: SystemTimers) -> None:
    for _ in range(3):
        timers.call_at(now() + 30, lambda: None).cancel()
        fired = threading.Event()
        timers.call_at(now() + 0.01, fired.set)
        assert fired.wait(60)


def test_a_timer_set_after_a_suspend_fires_in_time(no_leaks: None) -> None:
    class Suspended:
        """Ahead of what threads count while they wait."""

        slept = 0.0

        def now(self) -> float:
            return now() + self.slept

    clock = Suspended()
    timers = SystemTimers("test-timers", clock)
    idle, fired = threading.Event(), threading.Event()
    timers.call_at(clock.now(), idle.set)
    assert idle.wait(60)
    eventually(lambda: timers._until > clock.now())
    clock.slept = 3600.0
    timers.call_at(clock.now(), fired.set)
    assert fired.wait(60)
    timers.close()


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt, MemoryError])
def test_an_action_that_fails_is_logged_and_the_next_is_called(
    timers: SystemTimers, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    done = threading.Event()
    timers.call_at(now(), fail)
    timers.call_at(now() + 0.01, done.set)
    assert done.wait(30)
    assert flush(30)
    assert error.__name__ in caplog.text


def test_an_action_may_set_the_next_timer(timers: SystemTimers) -> None:
    done = threading.Event()
    timers.call_at(now(), lambda: timers.call_at(now(), done.set))
    assert done.wait(30)


def test_closing_fires_what_is_left_once_and_takes_no_more(timers: SystemTimers) -> None:
    fired: list[str] = []
    timers.call_at(now() + 3600, lambda: fired.append("later"))
    timers.call_at(now() + 1800, lambda: fired.append("sooner"))
    timers.close()
    timers.close()
    assert fired == ["sooner", "later"]
    with pytest.raises(ClientClosed):
        timers.call_at(now(), lambda: None)


def test_timers_may_be_closed_by_one_of_their_actions(timers: SystemTimers) -> None:
    closed = threading.Event()

    def close() -> None:
        timers.close()
        closed.set()

    timers.call_at(now(), close)
    assert closed.wait(30)


def test_closing_does_not_wait_long_for_an_action_that_blocks() -> None:
    timers = SystemTimers("test-timers")
    begun, unblock = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        unblock.wait(60)

    timers.call_at(now(), block)
    assert begun.wait(30)
    started = time.monotonic()
    timers.close()
    assert time.monotonic() - started < 30
    unblock.set()


@pytest.mark.parametrize("count", [1000])
def test_many_threads_set_timers_at_once(timers: SystemTimers, count: int) -> None:
    fired: list[int] = []

    def set_some(first: int) -> None:
        for number in range(first, count, 4):
            timers.call_at(now() + number % 7 / 1000, partial(fired.append, number))

    threads = [threading.Thread(target=set_some, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: len(fired) == count)
    assert sorted(fired) == list(range(count))


def test_sleeping_is_kept_after_its_time() -> None:
    virtual = VirtualTime()
    promise = sleep(VirtualTimers(virtual), 3)
    virtual.advance(2.9)
    assert not promise.done()
    virtual.advance(0.1)
    assert promise.result(0) is None


@pytest.mark.parametrize(
    "finish",
    [lambda promise: promise.resolve(1), lambda promise: promise.fail(KeyError())],
    ids=["kept", "broken"],
)
def test_a_bounded_wait_ends_with_the_future_however_it_ends(
    finish: Callable[[Promise[int]], object],
) -> None:
    virtual = VirtualTime()
    future: Promise[int] = Promise()
    waiting = within(VirtualTimers(virtual), future, 3)
    assert not waiting.done()
    finish(future)
    assert waiting.result(0) is None
    assert not virtual.step()


def test_a_bounded_wait_for_what_is_done_or_without_time_needs_no_timer() -> None:
    timers = VirtualTimers(VirtualTime())
    timers.close()
    assert within(timers, resolved(1), 3).done()
    assert within(timers, Promise[int](), 0).done()


def test_what_is_left_at_the_close_is_called_after_what_is_under_way() -> None:
    timers = SystemTimers("test-timers")
    inside, leave = threading.Event(), threading.Event()
    told: list[str] = []

    def first() -> None:
        inside.set()
        leave.wait(0.2)
        told.append("first")

    timers.call_at(now(), first)
    assert inside.wait(30)
    timers.call_at(now(), lambda: told.append("second"))
    timers.close()
    assert told == ["first", "second"]


def test_what_a_signal_handler_raises_while_a_thread_closes_timers_reaches_its_program() -> None:
    """The fault: Ctrl-C, which struck what the close calls, was logged and lost."""
    timers = SystemTimers()
    called: list[str] = []

    def struck() -> None:
        called.append("struck")
        if len(called) == 1:
            raise KeyboardInterrupt

    timers.call_at(now() + 60, struck)
    timers.call_at(now() + 61, lambda: called.append("next"))
    with pytest.raises(KeyboardInterrupt):
        timers.close()
    assert called == ["struck", "struck", "next"]


def test_ctrl_c_while_the_thread_is_started_leaves_one_thread(
    timers: SystemTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        start(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            timers.call_at(now() + 60, lambda: None)
    told = threading.Event()
    timers.call_at(now(), told.set)
    assert told.wait(30)
    eventually(lambda: [one.name for one in threading.enumerate()].count("test-timers") == 1)


def test_a_wait_after_the_timers_were_closed_ends_at_once() -> None:
    timers = SystemTimers()
    timers.close()
    assert within(timers, Promise[int](), 3).done()
