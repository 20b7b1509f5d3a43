"""How long a grant may be held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordlock.runtime.clock import Timer, Timers

__all__ = ["HoldLimit"]


class HoldLimit:
    """Calls ``expire`` with the seconds that were allowed once they are over, however often."""

    def __init__(self, timers: Timers, seconds: float, expire: Callable[[float], object]) -> None:
        #: How long it may be held from the grant on, and after an extension by no time of its own.
        self.seconds: Final = seconds
        self._timers = timers
        self._expire = expire
        self._allowed = seconds
        self._end = 0.0
        self._timer: Timer | None = None
        self.extend(seconds)

    @property
    def remaining(self) -> float:
        """Seconds until the end, 0 from then on."""
        return max(0.0, self._end - self._timers.clock.now())

    def extend(self, seconds: float) -> None:
        """Allow ``seconds`` from now."""
        self.cancel()
        self._allowed = seconds
        self._end = self._timers.clock.now() + seconds
        self._timer = self._timers.call_at(self._end, self.look)

    def look(self) -> None:
        """Look at the clock: it may be over where no timer has come to it yet."""
        if self._timers.clock.now() >= self._end:
            self._expire(self._allowed)

    def cancel(self) -> None:
        """Call nothing when it is over."""
        if self._timer is not None:
            self._timer.cancel()
