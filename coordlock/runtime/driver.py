"""The drivers that run protocols: one blocks, one awaits, one goes on in the background.

A protocol is a generator that yields futures and gets their results. It only advances in its
driver, so whoever gives up has stopped it: nothing is granted to a caller that has gone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from coordlock.runtime.clock import Clock
from coordlock.runtime.mailbox import Mailbox
from coordlock.runtime.promise import Promise

__all__ = ["DeadlineReached", "Steps", "completion", "run", "run_async", "run_in_background"]

T = TypeVar("T")

_LONGEST_WAIT: Final = 5.0
#: A task that has no deadline wakes up for its future, and now and then lest that be forgotten.
_LONGEST_SLEEP: Final = 60.0

#: A protocol with a result of type T.
Steps = Generator[Future[Any], Any, T]


class DeadlineReached(Exception):
    """Thrown into a protocol whose caller's time is up; ``__cause__`` is the last failure."""


def run(steps: Steps[T], clock: Clock, deadline: float | None = None) -> T:
    """Run ``steps`` in the calling thread until ``deadline`` on ``clock``; its result.

    The deadline and whatever interrupts the wait, Ctrl-C too, are thrown into the protocol. What
    it does after that, to clean up, it must bound itself: the deadline is thrown once.
    """
    try:
        future = next(steps)
        while True:
            try:
                if not future.done():
                    _wait(future, clock, deadline)
                outcome = future.result()
            except BaseException as error:
                if isinstance(error, DeadlineReached):
                    deadline = None
                future = steps.throw(error)
            else:
                # Whoever waits for long shall not keep the answer before that.
                future, outcome = steps.send(outcome), None
    except StopIteration as stop:
        result: T = stop.value
        return result


async def run_async(steps: Steps[T], clock: Clock, deadline: float | None = None) -> T:
    """Run ``steps`` in the current task until ``deadline`` on ``clock``; its result.

    The deadline, once, and the task's cancellation are thrown into the protocol, as in `run`.
    """
    try:
        future = next(steps)
        while True:
            try:
                if not future.done():
                    await _done(future, clock, deadline)
                outcome = future.result()
            except BaseException as error:
                if isinstance(error, DeadlineReached):
                    deadline = None
                future = steps.throw(error)
            else:
                # Whoever waits for long shall not keep the answer before that.
                future, outcome = steps.send(outcome), None
    except StopIteration as stop:
        result: T = stop.value
        return result


def run_in_background(steps: Steps[T]) -> Promise[T]:
    """Start ``steps`` here and go on in whichever thread completes its futures.

    Its steps must not block. The promise takes the outcome.
    """
    promise: Promise[T] = Promise()

    def advance(step: Callable[[], Future[Any]]) -> None:
        try:
            future = step()
            while future.done():
                future = _resume(steps, future)
        except StopIteration as stop:
            promise.resolve(stop.value)
        except BaseException as error:
            promise.fail(error)
            if not isinstance(error, Exception):
                raise  # Ctrl-C is for whoever runs this step
        else:
            future.add_done_callback(lambda done: advance(lambda: _resume(steps, done)))

    advance(lambda: next(steps))
    return promise


def _wait(future: Future[Any], clock: Clock, deadline: float | None) -> None:
    # One callback however long it takes: it cannot be taken off the future again.
    gate = threading.Lock()
    gate.acquire()
    future.add_done_callback(lambda _: gate.release())
    while not future.done():
        gate.acquire(timeout=_remaining(clock, deadline))


async def _done(future: Future[Any], clock: Clock, deadline: float | None) -> None:
    loop = asyncio.get_running_loop()
    sleeper = _Sleeper(loop)
    future.add_done_callback(sleeper)
    while not future.done():
        seconds = _LONGEST_SLEEP if deadline is None else _remaining(clock, deadline)
        timer = loop.call_later(seconds, sleeper.wake)
        try:
            await sleeper.sleep(loop)
        finally:
            timer.cancel()
            sleeper.forget()


class _Sleeper:
    """A task that waits for a future, whose callback this is. Small, for there may be thousands."""

    __slots__ = ("_mailbox", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._mailbox = Mailbox.of(loop)
        self._woken: asyncio.Future[None] | None = None

    def sleep(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        self._woken = loop.create_future()
        return self._woken

    def forget(self) -> None:
        """It does not sleep any more; a future that is done later shall not keep its loop."""
        self._woken = None

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():  # else its task was cancelled
            self._woken.set_result(None)

    def __call__(self, _: Future[Any]) -> None:
        self._mailbox.post(self.wake)


def completion(future: Future[Any]) -> asyncio.Future[None]:
    """What is kept in the running loop when ``future`` is done, however it ends.

    Cancelling it leaves ``future`` alone, unlike `asyncio.wrap_future`.
    """
    loop = asyncio.get_running_loop()
    completed: asyncio.Future[None] = loop.create_future()

    def complete() -> None:
        if not completed.done():  # its waiter was cancelled
            completed.set_result(None)

    def done(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(complete)

    future.add_done_callback(done)
    return completed


def _resume(steps: Steps[T], future: Future[Any]) -> Future[Any]:
    error = future.exception()
    return steps.send(future.result()) if error is None else steps.throw(error)


def _remaining(clock: Clock, deadline: float | None) -> float:
    """How long to wait before looking again; raises `DeadlineReached`.

    No wait is long: none counts the time of a suspend, as the clock does, and a signal that comes
    in the moment before a wait is seen only after it.
    """
    if deadline is None:
        return _LONGEST_WAIT
    if (seconds := deadline - clock.now()) <= 0:
        raise DeadlineReached
    return min(seconds, _LONGEST_WAIT)
