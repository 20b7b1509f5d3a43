"""One acquire, as it is recorded from its beginning to the end of its grant; or one upgrade."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from coordlock.errors import (
    ClientClosed,
    CoordlockError,
    DeadlockDetected,
    Evicted,
    LockLost,
    WaitCancelled,
    WaitTimeout,
)
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import HAD_LEFT, Ticket
from coordlock.model.claim import AnyClaim, Convertible, Permit
from coordlock.model.events import (
    AcquireFailed,
    AcquireStarted,
    AcquireWaiting,
    Granted,
    LossReason,
    Lost,
    Outcome,
    Released,
    ReleaseRequested,
    Upgraded,
)
from coordlock.model.names import joined
from coordlock.runtime.promise import Promise
from coordlock.runtime.recorder import RECORDER

__all__ = ["Recording", "mode_of"]

_numbers: Final = itertools.count(1)


class Recording:
    """Records one acquire, while somebody listens to `RECORDER`."""

    def __init__(
        self, engine: Engine, kind: str, called: str | None, claims: Mapping[str, AnyClaim]
    ) -> None:
        name = next(iter(claims)) if len(claims) == 1 else joined(claims)
        mode = mode_of(claims.values())
        self._clock: Final = engine.clock
        self._began: Final = engine.clock.now()
        self._granted = 0.0
        self._is_contended = False
        #: When the latest departure was seen for which it waited.
        self._departed: float | None = None
        #: Whether nothing more is to be recorded: Ctrl-C may strike at each step.
        self._is_over = False
        self._token = 0
        #: What all its events begin with.
        self._facts: Final = (
            *(engine.number, engine.backend.scheme),
            *(next(_numbers), kind, mode, called or name),
        )
        RECORDER.record(AcquireStarted(*self._facts))

    def waits(self, position: int, *, once: bool) -> None:
        """It has to wait, or is refused where it tries ``once``, with ``position`` ahead."""
        if not self._is_contended:
            self._is_contended = True
            if not once:
                RECORDER.record(AcquireWaiting(*self._facts, position))

    def departed(self) -> None:
        """A contender has left for which it waited."""
        self._departed = self._clock.now()

    def granted(self, ticket: Ticket) -> None:
        """It was granted ``ticket``, whose end is recorded, too."""
        now = self._granted = self._clock.now()
        departed = self._departed
        handoff = None if departed is None else now - departed
        self._token, waited = ticket.contenders[0].token or 0, now - self._began
        granted = Granted(*self._facts, waited, self._is_contended, self._token, handoff)
        # First: where a signal strikes from here on, the ticket is withdrawn.
        ticket.recording = self
        ticket.withdrawn.add_done_callback(partial(self._left, ticket))
        RECORDER.record(granted)

    def release_requested(self, reason: str) -> None:
        """Another client has asked the holder, which listens for that, to release it."""
        RECORDER.record(ReleaseRequested(*self._facts, self._token, reason))

    def upgraded(self) -> None:
        """The grant is held in mode EX now: it was an upgrade, and the grant's end is recorded."""
        self._is_over = True
        waited = self._clock.now() - self._began
        RECORDER.record(Upgraded(*self._facts, waited, self._is_contended))

    def failed(self, error: BaseException, *, once: bool) -> None:
        """It has ended with ``error``; whether it tried ``once`` only."""
        if self._granted or self._is_over:
            return  # struck after the grant, whose end is recorded
        self._is_over = True
        waited, kind = self._clock.now() - self._began, type(error).__name__
        outcome = _outcome(error, once=once)
        RECORDER.record(AcquireFailed(*self._facts, waited, self._is_contended, outcome, kind))

    def lost(self, ticket: Ticket, lost: CoordlockError) -> None:
        """The grant has ended by ``lost``."""
        self._finish(ticket, _loss(ticket, lost), str(lost))

    def _left(self, ticket: Ticket, _: Promise[bool]) -> None:
        """The service has answered a release: only that says whether the contender was there."""
        if (lost := ticket.end.result()) is not None:
            self.lost(ticket, lost)  # where a signal handler has struck its report
        elif ticket.found_nothing:
            self._finish(ticket, "evicted", f"{ticket.kind} {ticket.name!r}: {HAD_LEFT}")
        else:
            self._finish(ticket)

    def _finish(self, ticket: Ticket, reason: LossReason | None = None, text: str = "") -> None:
        """The grant was lost for that ``reason``, or released. The first end counts."""
        if not self._is_over:
            self._is_over = True
            held = self._clock.now() - self._granted
            if reason is None:
                RECORDER.record(Released(*self._facts, self._token, held))
            else:
                left = 0.0 if reason == "deadline" else ticket.session.remaining
                RECORDER.record(Lost(*self._facts, self._token, held, reason, text, left))


def mode_of(claims: Collection[AnyClaim]) -> str:
    """How events and metrics call the mode of ``claims``."""
    if len(claims) > 1:
        return "several"
    (claim,) = claims
    if isinstance(claim, Permit):
        return "permit"
    return claim.mode.name if isinstance(claim, Convertible) else claim.name


def _outcome(error: BaseException, *, once: bool) -> Outcome:
    match error:
        case WaitTimeout():
            return "busy" if once else "timeout"
        case DeadlockDetected():
            return "deadlock"
        case WaitCancelled() | ClientClosed():
            return "cancelled"
    return "error" if isinstance(error, Exception) else "cancelled"


def _loss(ticket: Ticket, lost: CoordlockError) -> LossReason | None:
    """Why the grant was ``lost``; None where it was released, or its client was closed."""
    match lost:
        case ClientClosed():
            return None
        case Evicted():
            return "evicted"
        case LockLost():
            return "max_hold"
    return "session" if ticket.session.gone else "deadline"
