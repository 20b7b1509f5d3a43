"""The clock for deadlines, and timers on it. Tests inject others."""

from __future__ import annotations

import heapq
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from coordlock.errors import ClientClosed
from coordlock.runtime.log import Log
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import Promise, call_each, resolved, settled

if TYPE_CHECKING:
    import random

__all__ = [
    "SYSTEM_CLOCK",
    "Clock",
    "SystemTimers",
    "Timer",
    "Timers",
    "sleep",
    "soon",
    "within",
]

log = Log("coordlock")


#: Seconds without anything to do after which a thread of timers ends.
_IDLE_S: Final = 0.5
#: Cancelled timers stay until there are this many more of them than of others.
_CANCELLED_TIMERS: Final = 256


class Clock(Protocol):
    """A monotonic clock."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""


class _SystemClock:
    # These go on while the machine is suspended, as the server's clock does: Linux's
    # CLOCK_BOOTTIME, macOS's CLOCK_MONOTONIC, and what Windows has as monotonic.
    now: Final = staticmethod(
        partial(
            time.clock_gettime,
            getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", -1)),
        )
        if hasattr(time, "clock_gettime")
        else time.monotonic
    )


SYSTEM_CLOCK: Final[Clock] = _SystemClock()


@dataclass(slots=True, eq=False)
class Timer:
    """A call that is due at ``when`` on the clock, unless it is cancelled before."""

    when: float
    action: Callable[[], object] | None

    def cancel(self) -> None:
        """Never make the call; harmless after it was made."""
        self.action = None

    def fire(self) -> None:
        """Call the action once, unless cancelled. Logs its errors, and never raises them."""
        action, self.action = self.action, None
        if action is not None:
            try:
                action()
            except BaseException:
                # SystemExit too: it ends a thread, and this one serves others.
                log.exception("a coordlock timer failed")


class Timers(Protocol):
    """Calls in the future, on one clock."""

    clock: Clock

    def call_at(self, when: float, action: Callable[[], object]) -> Timer:
        """Call ``action`` at ``when`` (seconds on the clock) or soon after.

        Raises `ClientClosed` after `close`.
        """

    def jitter(self, longest: float) -> float:
        """Up to ``longest`` seconds, at random.

        Not by the generator of Python's `random`, which the application may have seeded.
        """

    def close(self) -> None:
        """Make every call that is left now, so that no waiter sleeps for good."""


class SystemTimers:
    """Timers served by one daemon thread, which ends a moment after the last of them."""

    def __init__(self, name: str = "coordlock-timers", clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        #: With more timers than this, `call_at` removes those that were cancelled.
        self._room = _CANCELLED_TIMERS
        # Entered by the plain lock: a strike in `Condition.__enter__` would leave it taken.
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        #: When the thread looks at the timers again, unless it is woken.
        self._until = -math.inf
        self._closed = False
        self._dice: random.Random | None = None

    def jitter(self, longest: float) -> float:
        """Up to ``longest`` seconds, at random."""
        if self._dice is None:
            import random  # seldom needed, and not cheap to import

            self._dice = random.Random()
        return self._dice.uniform(0.0, longest)

    def call_at(self, when: float, action: Callable[[], object]) -> Timer:
        """Call ``action`` on the timer thread at ``when``; it must not block.

        Where no thread can be started, at a limit of threads or while the interpreter exits, what
        is due is called here, and the rest waits until one can.
        """
        timer = Timer(when, action)
        with self._lock:
            if self._closed:
                raise ClientClosed
            if self._thread is not None or self._start() or when > self.clock.now():
                heapq.heappush(self._heap, (when, next(self._numbers), timer))
                if len(self._heap) > self._room:
                    self._forget_cancelled()
                if when < self._until or self._until < self.clock.now():
                    # Its time to look may be past because the machine was suspended: a wait does
                    # not count that, and goes on.
                    self._wake.notify()
                    self._until = when
                return timer
        _make(timer)
        return timer

    def _start(self) -> bool:
        """Start the thread; whether it runs."""
        if sys.is_finalizing():  # Python 3.11 would wait for a thread that never runs
            return False
        thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.debug("no thread for a timer: %s", error)
            return False
        self._thread = thread  # only now: without the thread, no timer is served
        return True

    def close(self) -> None:
        """End the thread, waiting up to a second for its action; fire the timers that are left."""
        with self._lock:
            self._closed = True
            left, self._heap = self._heap, []
            self._wake.notify()
            thread = self._thread
        try:
            if thread not in (None, threading.current_thread()):
                thread.join(1.0)  # first: no two actions run at a time
        finally:
            call_each([timer for _, _, timer in sorted(left)], _make)

    def _forget_cancelled(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].action is not None]
        heapq.heapify(self._heap)
        self._room = _CANCELLED_TIMERS + 2 * len(self._heap)

    def _serve(self) -> None:
        THREAD.must_not_wait = True
        with self._lock:
            if self._thread is None:  # `start` was struck
                self._thread = threading.current_thread()
            elif self._thread is not threading.current_thread():
                return
        while True:
            with self._lock:
                is_idle = False
                while not self._closed and (delay := self._delay()) > 0:
                    if not self._heap:
                        if is_idle:
                            self._thread = None
                            return
                        is_idle, delay = True, min(delay, _IDLE_S)
                    self._until = self.clock.now() + delay
                    self._wake.wait(delay)
                if self._closed:
                    return
                self._until = -math.inf
                timer = heapq.heappop(self._heap)[2]
            timer.fire()

    def _delay(self) -> float:
        now = self.clock.now()
        # At most a minute at a time, because a wait doesn't count the time of a suspend.
        when = now + 60.0
        while self._heap and self._heap[0][2].action is None:
            skipped = heapq.heappop(self._heap)[0]
            if skipped > now:
                # Wake at its time all the same. A caller may set and cancel short timers over and
                # over; `call_at` then finds that this thread looks early enough, and need not wake
                # it each time.
                when = min(when, skipped)
        if self._heap:
            when = min(when, self._heap[0][0])
        return when - now


def _make(timer: Timer) -> None:
    """Make the call of ``timer`` in a program's thread, where a signal handler may raise."""
    if timer.action is not None:
        timer.action()
        timer.cancel()


def soon(timers: Timers, action: Callable[[], object]) -> None:
    """Call ``action`` in the timers' thread, where Ctrl-C cannot strike; never after `close`."""
    with suppress(ClientClosed):
        timers.call_at(timers.clock.now(), action)


def sleep(timers: Timers, seconds: float) -> Promise[None]:
    """A promise that is kept after ``seconds``."""
    promise: Promise[None] = Promise()
    timers.call_at(timers.clock.now() + seconds, partial(promise.resolve, None))
    return promise


def within(timers: Timers, future: Promise[Any], seconds: float | None) -> Promise[None]:
    """A promise that is kept when ``future`` is done, however it ends, or after ``seconds``."""
    if seconds is None:
        return settled(future)
    if future.done() or seconds <= 0:
        return resolved(None)
    promise: Promise[None] = Promise()

    def expire() -> None:
        future.remove_done_callback(finish)
        promise.resolve(None)

    def finish(_: Promise[Any]) -> None:
        timer.cancel()
        promise.resolve(None)

    try:
        timer = timers.call_at(timers.clock.now() + seconds, expire)
    except ClientClosed:  # another thread has just closed them, which ends all that wait
        return resolved(None)

    future.add_done_callback(finish)
    return promise
