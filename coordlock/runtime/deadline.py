"""The moment by which a protocol wants to be done."""

from __future__ import annotations

from typing import NamedTuple

from coordlock.runtime.cancellation import Cancellation, Waker
from coordlock.runtime.clock import Clock

__all__ = ["Cancelled", "Deadline", "DeadlineReached"]


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
            cancellation._add_waker(wake)

    def discard(self, wake: Waker) -> None:
        """Let them no longer call ``wake``."""
        for cancellation in self.cancellations:
            cancellation._discard_waker(wake)


class DeadlineReached(Exception):
    """Thrown into a protocol whose time is up; ``__cause__`` is the last failure."""


class Cancelled(DeadlineReached):
    """Thrown into a protocol whose caller no longer waits; the text gives the reason."""
