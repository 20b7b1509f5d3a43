"""One acquire, as it is recorded from its beginning to the end of its grant."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Final

from coordlock.errors import (
    AcquireTimeout,
    ClientClosed,
    CoordlockError,
    DeadlockDetected,
    Evicted,
    LockLost,
    WaitCancelled,
)
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import AnyClaim, Permit, in_force
from coordlock.model.events import (
    AcquireFailed,
    AcquireStarted,
    AcquireWaiting,
    Granted,
    LossReason,
    Lost,
    Outcome,
    Released,
)
from coordlock.model.names import joined
from coordlock.runtime.promise import Promise
from coordlock.runtime.recorder import RECORDER

__all__ = ["Recording"]

_numbers: Final = itertools.count(1)


class Recording:
    """Records one acquire, while somebody listens to `RECORDER`."""

    def __init__(
        self, engine: Engine, kind: str, called: str | None, claims: Mapping[str, AnyClaim]
    ) -> None:
        if len(claims) == 1:
            ((name, claim),) = claims.items()
            claim = in_force(claim)
            mode = "permit" if isinstance(claim, Permit) else claim.name
        else:
            name, mode = joined(claims), "several"
        self._clock: Final = engine.clock
        self._began: Final = engine.clock.now()
        self._granted = 0.0
        self._is_contended = False
        #: When the latest departure was seen for which it waited.
        self._departed: float | None = None
        #: What all its events begin with.
        self._facts: Final = (
            *(engine.number, engine.backend.scheme),
            *(next(_numbers), kind, mode, called or name),
        )
        RECORDER.record(AcquireStarted(*self._facts))

    def waits(self, position: int) -> None:
        """It has to wait, or is refused, with ``position`` contenders ahead."""
        if not self._is_contended:
            self._is_contended = True
            RECORDER.record(AcquireWaiting(*self._facts, position))

    def departed(self) -> None:
        """A contender has left for which it waited."""
        self._departed = self._clock.now()

    def granted(self, ticket: Ticket) -> None:
        """It was granted ``ticket``, whose end is recorded, too."""
        now = self._granted = self._clock.now()
        departed = self._departed
        handoff = None if departed is None else now - departed
        token, waited = ticket.contenders[0].token or 0, now - self._began
        RECORDER.record(Granted(*self._facts, waited, self._is_contended, token, handoff))

        def ended(end: Promise[CoordlockError | None]) -> None:
            held, lost = self._clock.now() - self._granted, end.result()
            reason = None if ticket.is_leaving else _loss(ticket, lost)
            if reason is None:
                RECORDER.record(Released(*self._facts, token, held))
            else:
                left = 0.0 if reason == "deadline" else ticket.session.remaining
                RECORDER.record(Lost(*self._facts, token, held, reason, str(lost), left))

        ticket.end.add_done_callback(ended)

    def failed(self, error: BaseException, *, once: bool) -> None:
        """It has ended with ``error``; whether it tried ``once`` only."""
        waited, kind = self._clock.now() - self._began, type(error).__name__
        outcome = _outcome(error, once=once)
        RECORDER.record(AcquireFailed(*self._facts, waited, self._is_contended, outcome, kind))


def _outcome(error: BaseException, *, once: bool) -> Outcome:
    match error:
        case AcquireTimeout():
            return "busy" if once else "timeout"
        case DeadlockDetected():
            return "deadlock"
        case WaitCancelled() | asyncio.CancelledError() | KeyboardInterrupt() | GeneratorExit():
            return "cancelled"
    return "error"


def _loss(ticket: Ticket, lost: CoordlockError | None) -> LossReason | None:
    """Why the grant was ``lost``; None where it was released, or its client was closed."""
    match lost:
        case None | ClientClosed():
            return None
        case Evicted():
            return "evicted"
        case LockLost():
            return "max_hold"
    return "session" if ticket.session.gone else "deadline"
