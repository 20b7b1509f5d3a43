"""Removing contenders for certain: asked until the service has answered, again when in doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from coordlock.backend import Backend
from coordlock.errors import BackendUnavailable, SessionLost
from coordlock.kernel.recovery import Recovery
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session
from coordlock.model.contender import Entry
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, resolved

__all__ = ["Removal", "Removed", "removal"]

#: When a contender in doubt is looked for again after its removal: seconds from one to the next.
_CONFIRMATIONS: Final = (1.0, 5.0, 15.0, 60.0)


def removal(
    call: Callable[[], Promise[bool]],
    timers: Timers,
    *,
    longest: float = 2.0,
    pause: Callable[[float], Promise[None]] | None = None,
) -> Steps[bool]:
    """The answer of ``call``, which removes something and tells whether it was there.

    Repeated as `retried` does. When an earlier attempt was left without an answer, "not there"
    means that it was the one.
    """
    doubts: list[BackendUnavailable] = []
    steps = retried(call, timers, longest=longest, on_failure=doubts.append, pause=pause)
    removed = yield from steps
    return removed or bool(doubts)


class Removed(NamedTuple):
    """Whether every contender was there to be removed, and whether that is certain."""

    was_there: bool
    is_certain: bool


class Removal:
    """The removal of the contenders of a ticket that is withdrawn.

    An outage does not end it: it goes on when the service answers again, or when the service has
    ended the session, which removes them, too.
    """

    __slots__ = ("_backend", "_entries", "_recovery", "_session", "_timers")

    def __init__(
        self,
        entries: Sequence[Entry],
        session: Session,
        backend: Backend,
        timers: Timers,
        recovery: Recovery,
    ) -> None:
        self._entries = entries
        self._session = session
        self._backend = backend
        self._timers = timers
        self._recovery = recovery

    def steps(self) -> Steps[Removed]:
        """Remove them."""
        waited = False

        def pause(seconds: float) -> Promise[None]:
            nonlocal waited
            waited = True
            return self._recovery.pause(seconds)

        try:
            was_there = yield from removal(self._ask, self._timers, longest=5.0, pause=pause)
        except SessionLost as error:
            self._session.gone_with(error)
            return Removed(False, True)
        if waited and not self._session.gone:
            self._recovery.noticed()  # it was asked in vain before, and now the service answers
        return Removed(was_there, not waited)

    def repeated(self) -> Steps[None]:
        """Remove again, later, what a request may make that was sent and never answered."""
        for delay in _CONFIRMATIONS:
            yield sleep(self._timers, delay)
            yield from self.steps()

    def _ask(self) -> Promise[bool]:
        if self._session.gone:
            return resolved(False)
        return self._backend.withdraw(self._entries)
