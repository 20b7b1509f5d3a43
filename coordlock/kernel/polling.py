"""Acquiring where the service keeps no order: ask again and again, at random times.

The service reports no departures, and contenders that ask at the same time may refuse each other.
So each waits a time of its own before it asks again.
"""

from __future__ import annotations

from typing import Final

from coordlock.kernel.engine import Engine
from coordlock.kernel.report import Report
from coordlock.kernel.ticket import Ticket
from coordlock.model.admission import blockers, newcomer
from coordlock.model.contender import Snapshot
from coordlock.runtime.cancellation import ENDING
from coordlock.runtime.deadline import Cancelled
from coordlock.runtime.driver import Steps

__all__ = ["poll"]

#: Seconds between two attempts, at most: the first, and what they double to.
_PAUSES_S: Final = (0.05, 0.4)


def poll(engine: Engine, ticket: Ticket, report: Report, once: bool) -> Steps[tuple[Snapshot, ...]]:
    """Ask until ``ticket`` is in its queues, where nothing is in its way; the queues.

    Raises `AcquireTimeout` if that is not so ``once``.
    """
    pause, longest = _PAUSES_S
    while True:
        queues = yield from ticket.enqueue(unless_blocked=True)
        if ticket.contenders:
            return queues
        mine = tuple(map(newcomer, ticket.entries))
        report.note_wait(
            ticket, mine, queues, [blockers(*pair) for pair in zip(queues, mine, strict=True)]
        )
        if once:
            raise report.timeout_error()
        if ENDING.reason is not None:
            raise Cancelled(ENDING.reason)
        yield ticket.pause(engine.timers.jitter(pause))
        pause = min(2 * pause, longest)
