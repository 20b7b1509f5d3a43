"""The protocol by which a lock is acquired, written once for all backends and both drivers."""

from __future__ import annotations

from copy import copy
from typing import Final

from coordlock.errors import (
    AcquireCancelled,
    CoordlockError,
    Evicted,
    QueueMismatch,
    SessionLost,
)
from coordlock.kernel.engine import Engine
from coordlock.kernel.report import PATIENCE, Report, identified
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session
from coordlock.kernel.ticket import Ticket
from coordlock.log import Log
from coordlock.model.admission import blockers, mismatch, next_in_line
from coordlock.model.claim import Claim
from coordlock.model.contender import Contender, Snapshot, are_same
from coordlock.runtime.caller import Caller
from coordlock.runtime.cancellation import ENDING, Cancellation
from coordlock.runtime.clock import within
from coordlock.runtime.deadline import Cancelled, Deadline, DeadlineReached
from coordlock.runtime.driver import Steps

__all__ = ["acquisition"]

log = Log("coordlock")

#: New sessions that a contender may need before it stands in the queue for the first time.
_SESSIONS: Final = 3


class _Acquisition:
    """One call of acquire."""

    __slots__ = ("caller", "claim", "engine", "label", "queue", "report", "ticket")

    def __init__(
        self,
        engine: Engine,
        queue: str,
        claim: Claim,
        caller: Caller | None,
        label: str | None,
        report: Report,
    ) -> None:
        self.engine = engine
        self.queue = queue
        self.claim = claim
        self.caller = caller
        self.label = label
        self.report = report
        self.ticket: Ticket | None = None

    def steps(self, once: bool) -> Steps[Ticket]:
        try:
            attempts = 0
            while True:
                session = yield from self.engine.session()
                ticket = self.engine.ticket(session, self.queue, self.claim, self.label)
                self.ticket = ticket
                try:
                    yield from self._queue(ticket, once)
                    return ticket
                except (SessionLost, Evicted) as gone:
                    ticket.withdraw()
                    lost: CoordlockError | None = gone
                    if isinstance(gone, Evicted):
                        lost = yield from self._cause(session)
                    self.engine.check()
                    if lost is None:
                        raise Evicted(self.queue) from None
                    # Without a place in the queue there is nothing to lose: a new session may try.
                    attempts = attempts + 1 if ticket.contender is None else 0
                    may_go_on = attempts < _SESSIONS if attempts else self._may_requeue(lost, once)
                    if not may_go_on:
                        raise lost from None
                except BaseException:
                    ticket.withdraw()
                    raise
        except Cancelled as cancelled:
            raise AcquireCancelled(self.queue, str(cancelled)) from cancelled.__cause__
        except DeadlineReached as late:
            if once and self.report.has_seen:
                raise self.report.busy() from None
            if once:
                raise self.engine.silent(late) from late.__cause__
            error, cause = self.report.in_vain(late, self.ticket)
            raise error from cause

    def _may_requeue(self, error: CoordlockError, once: bool) -> bool:
        """Whether to go on at the end of the queue, in place of ``error``; says so."""
        if once or not self.engine.settings.requeue:
            return False
        log.warning("lock %r: %s; waiting goes on at the end of the queue", self.queue, error)
        return True

    def _cause(self, session: Session) -> Steps[CoordlockError | None]:
        """Why a contender has gone that was told to be: its session's end, or None."""
        # The end of a session removes its contenders too: ask which it was.
        yield within(self.engine.timers, session.beat(), PATIENCE)
        return copy(session.ended)

    def _queue(self, ticket: Ticket, once: bool) -> Steps[None]:
        snapshot = self.engine.deduplicated((yield from ticket.enqueue()))
        me = ticket.contender
        assert me is not None
        while True:
            if (other := mismatch(snapshot, me)) is not None:
                other = yield from identified(self.engine, self.queue, other)
                raise QueueMismatch(self.queue, str(self.claim), str(other.claim), str(other))
            waiting_for = blockers(snapshot, me)
            if not waiting_for and not snapshot.omitted:
                # No contender enters before me, so none that is not in this snapshot can be in my
                # way, and one that has departed never returns. And I am still there: see `_wait`.
                self.engine.grant(ticket, snapshot.revision, self.caller)
                self.report.granted(ticket)
                return
            if not waiting_for:
                snapshot = yield from self._read(ticket, None)
                continue
            self.report.waits(ticket, snapshot.omitted + len(snapshot.before(me)), waiting_for[-1])
            if once:
                yield within(self.engine.timers, ticket.withdraw(), PATIENCE)
                raise self.report.busy()
            if ENDING.reason is not None:
                raise Cancelled(ENDING.reason)
            snapshot = yield from self._wait(ticket, me, snapshot, waiting_for)

    def _wait(
        self,
        ticket: Ticket,
        me: Contender,
        snapshot: Snapshot,
        waiting_for: tuple[Contender, ...],
    ) -> Steps[Snapshot]:
        """Wait until one of ``waiting_for`` has left; the queue after that, with me in it.

        No read is needed when `next_in_line` proves the grant. That I am still there, the watch on
        my own contender tells: it was set before, and departures are told in the order in which
        they happen. Two things can be told in any order, and then the queue is read: what happened
        while the connection was broken or while a watch was being set, which the backend tells with
        the departure; and what happened at once, as when my session ends and takes all of its
        contenders. So those of this client's own that have gone must have been removed by their
        withdrawal: see `_left`.
        """
        nearest = waiting_for[-1]
        # Now, because they may be forgotten later; the last one is the nearest's.
        owns = tuple(map(self.engine.own, waiting_for))
        departure = ticket.departure(waiting_for, snapshot.revision)
        yield from self.report.on_time(departure, ticket)
        assert ticket.departures is not None
        departed = ticket.departures.seen  # more may go meanwhile
        doubtful = ticket.departures.in_doubt
        for one, own in zip(waiting_for, owns, strict=True):
            if own is not None and one in departed and not doubtful:
                doubtful = not (yield from self._left(one, own, ticket))
        if doubtful:
            return (yield from self._read(ticket, me))
        hands_over = nearest in departed and _hands_over(owns[-1], nearest, me)
        left = next_in_line(snapshot, me, departed, nearest if hands_over else None)
        return left if left is not None else (yield from self._read(ticket, me))

    def _left(self, one: Contender, own: Ticket, ticket: Ticket) -> Steps[bool]:
        """Whether ``one``, which has departed, was removed by the withdrawal of ``own``, and alone.

        The answer to the withdrawal tells, which comes at about the same time as the departure. An
        attempt without answer proves nothing, nor does another contender of the same entry.
        """
        if not own.is_leaving or own.contender is None or not are_same(own.contender, one):
            return False
        answer = ticket.unless_lost(own.withdraw())
        yield within(self.engine.timers, answer, PATIENCE)
        return own.removed_alone

    def _read(self, ticket: Ticket, upto: Contender | None) -> Steps[Snapshot]:
        backend, timers = self.engine.backend, self.engine.timers
        if ticket.departures is not None:
            ticket.departures.in_doubt = False
        snapshot = yield from retried(
            lambda: ticket.unless_lost(backend.snapshot(self.queue, upto)), timers
        )
        me = ticket.contender
        # An attempt that arrived late may have made another one of the same entry.
        if me is None or not any(are_same(one, me) for one in snapshot.contenders):
            raise Evicted(self.queue)
        return snapshot


def _hands_over(predecessor: Ticket | None, nearest: Contender, me: Contender) -> bool:
    """Whether ``nearest``, the contender of ``predecessor``, leaves me next when it goes.

    It does where it was granted and we ask for the same: see `next_in_line`. An id alone doesn't
    tell what was granted: a lost attempt may have left another contender of the same entry behind.
    """
    if predecessor is None or predecessor.granted is None or predecessor.contender is None:
        return False
    return are_same(predecessor.contender, nearest) and nearest.claim == me.claim


def acquisition(
    engine: Engine,
    queue: str,
    claim: Claim,
    timeout: float | None = None,
    caller: Caller | None = None,
    label: str | None = None,
    cancellation: Cancellation | None = None,
) -> Steps[Ticket]:
    """Acquire ``queue`` as ``claim``; the granted ticket.

    It ends after ``timeout`` seconds, None waits for ever and 0 tries once; ``caller`` is warned
    when it waits for itself, and ``label`` is shown in place of the client's. Raises
    `AcquireTimeout` when the time is up, `AcquireUnavailable` where the service is silent then;
    asked once, `AcquireTimeout` when the lock is busy, and `BackendUnavailable` when the service is
    silent. Raises `QueueMismatch`, `SessionLost` or `Evicted` when the contender is lost while it
    waits, `AcquireCancelled` when ``cancellation`` comes or the process is to end, and what the
    backend raises. However it ends without a grant, the ticket is withdrawn.
    """
    once = timeout == 0
    deadline = engine.deadline(engine.settings.request_timeout if once else timeout)
    if cancellation is None and ENDING.waits is None:
        yield deadline
    else:
        if cancellation is not None and cancellation.reason is not None:
            raise AcquireCancelled(queue, cancellation.reason)
        both = (one for one in (cancellation, ENDING.waits) if one is not None)
        yield Deadline.at_latest(deadline, engine.clock, tuple(both))
    report = Report(engine, queue, claim, caller, None if once else deadline)
    return (yield from _Acquisition(engine, queue, claim, caller, label, report).steps(once))
