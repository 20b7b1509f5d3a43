"""The sweep, which removes what a client has given up from its queues, until nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Protocol

from coordlock.errors import ClientClosed
from coordlock.runtime.clock import Timer, Timers, soon
from coordlock.runtime.log import Log

__all__ = ["Sweep", "Swept"]

log = Log("coordlock")

#: Seconds from one sweep to the next at most; a third of the time-to-live where that is shorter.
_LONGEST_PAUSE: Final = 5.0


class Swept(Protocol):
    """What is looked at: a ticket."""

    def sweep(self) -> None:
        """Withdraw it if it was given up, or go on with that. Never blocks."""


class _Tickets(Protocol):
    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Swept]:
        """Over a copy."""


class Sweep:
    """Looks at all tickets of a client in the timers' thread, about as often as it heartbeats.

    A signal handler may raise between any two lines of an acquire or a release, a service may
    refuse a removal for a while, and an event loop may be closed under a waiter. Each leaves a
    ticket that nobody goes on with. All tickets are noted before they are sent, so the sweep finds
    it, and whatever strikes its first removal, this repeats it.
    """

    def __init__(self, tickets: _Tickets, timers: Timers, ttl: float) -> None:
        self._tickets: Final = tickets
        self._timers: Final = timers
        self._pause: Final = min(_LONGEST_PAUSE, ttl / 3)
        self._timer: Timer | None = None
        #: Why removals are refused, as the log has said.
        self._refusals: Final[set[str]] = set()

    def begin(self) -> None:
        """There is a ticket: sweep now and then until there is none."""
        if self._timer is None:
            with suppress(ClientClosed, RuntimeError):  # or no thread can be started
                when = self._timers.clock.now() + self._pause
                self._timer = self._timers.call_at(when, self._look)

    def soon(self) -> None:
        """Sweep now: the service answers again."""
        if self._tickets:
            soon(self._timers, self._look)

    def _look(self) -> None:
        if (timer := self._timer) is not None:
            timer.cancel()  # so that there is one at a time
        self._timer = None
        for ticket in self._tickets:
            try:
                ticket.sweep()
            except Exception:
                log.exception("a withdrawal failed, and is repeated")
        if self._tickets:
            self.begin()

    def refused(self, name: str, error: BaseException) -> None:
        """The service refuses to remove contenders from ``name``. The log says each reason once."""
        reason = str(error)
        if reason not in self._refusals:
            self._refusals.add(reason)
            log.error("could not withdraw from %r, and will try again: %s", name, error)

    def accepted(self) -> None:
        """The service has removed what it refused to remove before."""
        if self._refusals:
            self._refusals.clear()
            log.warning("the service removes contenders again")
