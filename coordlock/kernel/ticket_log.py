"""What the log says of tickets: which grants were lost, and which waits are long."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from coordlock.errors import CoordlockError, Evicted, LockLost
from coordlock.model.contender import Contender, Snapshot
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise

if TYPE_CHECKING:
    from coordlock.kernel.ticket import Ticket

__all__ = ["LONG_WAIT_S", "TicketLog", "is_held", "is_plumbing"]

log = Log("coordlock")

#: A wait that lasts longer is logged, once.
LONG_WAIT_S: Final = 10.0
#: How many lines about losses are written in how many seconds at most.
_MOST_LINES: Final = 20
_WINDOW_S: Final = 10.0


def is_plumbing(kind: str) -> bool:
    """Whether tickets of this ``kind`` are a work queue's own: those of its workers and chores."""
    return kind.endswith("work queue")


def is_held(ticket: Ticket) -> bool:
    """Whether ``ticket`` was granted to somebody who relies on it."""
    return ticket.granted_at is not None and not is_plumbing(ticket.kind)


class TicketLog:
    """Logs losses and long waits, at most 20 losses in 10 seconds: a session may hold thousands."""

    def __init__(self) -> None:
        self._window = -_WINDOW_S
        self._lines = 0
        self._omitted = 0

    def lost(self, ticket: Ticket, error: CoordlockError, now: float) -> None:
        """``ticket``, which was granted, was lost with ``error`` at ``now``."""
        if now - self._window >= _WINDOW_S:
            self._window, self._lines = now, 0
            self.flush()
        self._lines += 1
        if self._lines > _MOST_LINES:
            self._omitted += 1
            return
        token = (ticket.contenders[0].token or 0) if ticket.contenders else 0
        reason = error.reason if isinstance(error, Evicted | LockLost) else str(error)
        held = max(0.0, time.time() - (ticket.granted_at or time.time()))
        how_long = "" if isinstance(error, LockLost) else f"; it was held for {held:.1f} s"
        log.warning(
            "%s%s",
            LockLost(ticket.name, token, reason, kind=ticket.kind),
            how_long,
            extra={
                "coordlock_name": ticket.name,
                "coordlock_kind": ticket.kind,
                "coordlock_token": token,
                "coordlock_reason": reason,
                "coordlock_held": held,
            },
        )

    def flush(self) -> None:
        """Log how many losses were not logged one by one."""
        omitted, self._omitted = self._omitted, 0
        if omitted:
            log.warning("%d more grants were lost in the same moments", omitted)

    def waits(self, ticket: Ticket, blocker: Contender, answer: Promise[Snapshot]) -> None:
        """``ticket`` has waited long behind ``blocker``; the ``answer`` tells whose that is."""
        answer.add_done_callback(partial(_log_wait, ticket, blocker))


def _log_wait(ticket: Ticket, blocker: Contender, answer: Promise[Snapshot]) -> None:
    if answer.exception() is not None or ticket.blocker is None:
        return  # the service is away, which has a line of its own, or the wait is over
    queue = answer.result()
    blocker = queue.find(blocker.id) or blocker
    waited = max(0.0, time.time() - (ticket.waits_since or time.time()))
    log.info(
        "%s %r: waiting for %.0f s behind %s",
        ticket.kind,
        ticket.name,
        waited,
        blocker,
        extra={
            "coordlock_name": ticket.name,
            "coordlock_kind": ticket.kind,
            "coordlock_waited": waited,
            "coordlock_behind": str(blocker),
        },
    )
