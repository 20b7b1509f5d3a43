"""The moment by which a protocol wants to be done."""

from __future__ import annotations

from typing import NamedTuple

from coordlock.runtime.clock import Clock

__all__ = ["Deadline", "DeadlineReached"]


class Deadline(NamedTuple):
    """A moment on a clock. A protocol that yields one has it from then on, in place of any before.

    Its driver ends the wait at that moment by throwing `DeadlineReached` into it, once.
    """

    clock: Clock
    at: float

    def remaining(self) -> float:
        """Seconds left; 0 or less when it has come."""
        return self.at - self.clock.now()

    @classmethod
    def after(cls, seconds: float | None, clock: Clock) -> Deadline | None:
        """The moment ``seconds`` from now; None stays None, which is never."""
        return None if seconds is None else cls(clock, clock.now() + seconds)


class DeadlineReached(Exception):
    """Thrown into a protocol whose time is up; ``__cause__`` is the last failure."""
