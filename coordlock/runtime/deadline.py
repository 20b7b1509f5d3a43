"""The moment by which a protocol wants to be done, and what ends it earlier from outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from coordlock.runtime.clock import Clock

__all__ = [
    "ENDING",
    "Cancellation",
    "Cancelled",
    "Deadline",
    "DeadlineReached",
    "Ending",
    "checked",
]

#: What wakes a driver that waits. It is called with something, like a callback of a promise.
Waker = Callable[[Any], None]


class Cancellation:
    """Cancels the waits of the calls that take it, from any thread, task or signal handler.

    ::

        stop = coordlock.Cancellation()
        with client.lock("reports").acquire(cancellation=stop) as grant:  # in one thread
            ...
        stop.cancel("the window was closed")  # in another

    A call that waits, whether for other clients or for the service, leaves the queue and raises
    `WaitCancelled`. A call that begins later raises it at once. What was granted before stays held.
    """

    __slots__ = ("__weakref__", "_reason", "_wakers")

    def __init__(self) -> None:
        self._reason: str | None = None
        # Without a lock, which a signal handler could find taken: each use of the set is one step
        # of the interpreter. A waiter adds itself before it looks at the reason, and `cancel` sets
        # the reason before it looks for waiters; so one of them sees the other.
        self._wakers: set[Waker] = set()

    def cancel(self, reason: str = "cancel() was called") -> None:
        """End the waits, from now on; their errors show ``reason``. The first call counts."""
        if not isinstance(reason, str):
            raise TypeError(f"reason must be a text, not {reason!r}")
        if self._reason is None:
            self._reason = reason
        for wake in list(self._wakers):
            wake(None)

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """Why, or None while it wasn't."""
        return self._reason

    def __repr__(self) -> str:
        return f"<Cancellation{'' if self._reason is None else f': {self._reason}'}>"


def checked(cancellation: object) -> Cancellation | None:
    """``cancellation``. Raises TypeError for what is neither a `Cancellation` nor None."""
    if cancellation is None or isinstance(cancellation, Cancellation):
        return cancellation
    raise TypeError(f"cancellation must be a coordlock.Cancellation, not {cancellation!r}")


class Deadline(NamedTuple):
    """A moment on a clock, until which a protocol, or a part of it, may take.

    At that moment its driver throws `DeadlineReached` into it, once; or `Cancelled`, when one of
    the cancellations comes earlier.
    """

    clock: Clock
    at: float
    cancellations: tuple[Cancellation, ...] = ()

    def remaining(self) -> float:
        """Seconds left; 0 or less when it has come."""
        return self.at - self.clock.now()

    @classmethod
    def after(cls, seconds: float | None, clock: Clock) -> Deadline | None:
        """The moment ``seconds`` from now; None for None, which means never."""
        return None if seconds is None else cls(clock, clock.now() + seconds)

    def left(self) -> float:
        """Seconds left, more than 0.

        Raises `Cancelled` after a cancellation, and `DeadlineReached` after the moment.
        """
        for cancellation in self.cancellations:
            if (reason := cancellation.reason) is not None:
                raise Cancelled(reason)
        if (seconds := self.remaining()) <= 0:
            raise DeadlineReached
        return seconds

    def add(self, wake: Waker) -> None:
        """Let the cancellations call ``wake``."""
        for cancellation in self.cancellations:
            cancellation._wakers.add(wake)

    def discard(self, wake: Waker) -> None:
        """Let them no longer call ``wake``."""
        for cancellation in self.cancellations:
            cancellation._wakers.discard(wake)


class DeadlineReached(Exception):
    """Thrown into a protocol whose time is up; ``__cause__`` is the last failure."""


class Cancelled(DeadlineReached):
    """Thrown into a protocol whose caller no longer waits; the text gives the reason."""


class Ending:
    """Whether this process was asked to end, which ends the waits that are under way then."""

    def __init__(self) -> None:
        #: What those that wait at present are given; None where nothing looks out for a request.
        self.waits: Cancellation | None = None
        #: Who asked, once that has happened: nothing should begin a long wait then.
        self.reason: str | None = None

    def begin(self, reason: str) -> None:
        """The process was asked to end. From a signal handler."""
        self.reason = reason
        # Another one for what begins now: code that cleans up may need a lock.
        waits, self.waits = self.waits, Cancellation()
        if waits is not None:
            waits.cancel(reason)

    def forget(self) -> None:
        """This is the child of a fork, which nobody has asked."""
        self.reason = None
        if self.waits is not None:
            self.waits = Cancellation()


#: Of this process.
ENDING: Final = Ending()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ENDING.forget)
