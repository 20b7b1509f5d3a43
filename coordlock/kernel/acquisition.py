"""The protocol by which a lock is acquired, written once for all backends and both drivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Final

from coordlock.errors import (
    AcquireTimeout,
    BackendUnavailable,
    CoordlockError,
    Evicted,
    NameConflict,
    SessionLost,
    WaitCancelled,
    WaitError,
)
from coordlock.kernel.engine import Engine
from coordlock.kernel.entries import Announcement
from coordlock.kernel.report import PATIENCE, Report, identified
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.model.admission import blockers, mismatch, newcomer, next_in_line
from coordlock.model.claim import AnyClaim, Mode, Permit
from coordlock.model.contender import Contender, Snapshot, are_same
from coordlock.model.names import joined
from coordlock.runtime.caller import Caller
from coordlock.runtime.cancellation import ENDING, Cancellation
from coordlock.runtime.clock import within
from coordlock.runtime.deadline import Cancelled, DeadlineReached
from coordlock.runtime.driver import Call, Steps, or_undo
from coordlock.runtime.promise import Promise, all_of

__all__ = ["acquisition"]

#: In how many sessions an acquire tries to enter its queues before it raises `SessionLost`.
_SESSIONS: Final = 3


def acquisition(
    engine: Engine,
    claims: Mapping[str, AnyClaim],
    timeout: float | None = None,
    caller: Caller | None = None,
    label: str | None = None,
    cancellations: tuple[Cancellation, ...] = (),
    announcement: Announcement | None = None,
    kind: str = "lock",
    name: str | None = None,
) -> Steps[Ticket]:
    """Acquire the queues in ``claims``, each as its claim, all at once; the granted ticket.

    It ends after ``timeout`` seconds; None waits for ever, and 0 tries once. ``caller`` is warned
    when it waits for itself. ``label`` is shown in place of the client's. The contender publishes
    ``announcement`` from the beginning. ``kind`` and ``name`` are what errors and the log
    call it; without a ``name``, that of its queues.

    Raises `WaitError`: `AcquireTimeout` when the lock is busy until then, `WaitUnavailable`
    where the service is silent, `SessionLost` or `Evicted` when a contender is lost while it waits,
    `DeadlockDetected` when it waits in a cycle with others, `WaitCancelled` when one of
    ``cancellations`` comes or the process is to end. Raises `NameConflict`, and what else the
    backend raises. However it ends without a grant, the ticket is withdrawn.
    """
    if kind == "lock" and all(isinstance(one, Permit) for one in claims.values()):
        kind = "semaphore"
    once = timeout == 0
    seconds = engine.settings.request_timeout if once else timeout
    deadline = engine.until(seconds, *cancellations)
    try:
        for one in cancellations:
            if one.reason is not None:
                raise WaitCancelled(name or joined(claims), one.reason)
        call = yield deadline
        report = Report(engine, claims, name, caller, once, engine.deadline(seconds))
        attempt = _Acquisition(
            engine, claims, kind, caller, label, report, announcement, once, call
        )
        return (yield from or_undo(attempt.steps(), attempt.withdraw))
    except WaitError as error:
        error.kind = kind
        raise


@dataclass(slots=True, eq=False)
class _Acquisition:
    """One call of acquire."""

    engine: Engine
    claims: Mapping[str, AnyClaim]
    kind: str
    caller: Caller | None
    label: str | None
    report: Report
    announcement: Announcement | None
    once: bool
    call: Call | None
    ticket: Ticket | None = None
    #: Ends the detection of deadlocks, where it has begun.
    undetect: Callable[[], None] | None = None
    #: How many sessions in a row have ended before the contender was in its queues.
    lost_sessions: int = 0

    def steps(self) -> Steps[Ticket]:
        try:
            while True:
                session = yield from self.engine.session()
                ticket = self.engine.ticket(
                    session, self.claims, self.label, self.announcement, self.call
                )
                ticket.kind, ticket.called = self.kind, self.report.called
                self.ticket = ticket
                try:
                    yield from self._enqueue_and_wait(ticket)
                    return ticket
                except (SessionLost, Evicted) as gone:
                    yield from self._go_on_or_raise(ticket, gone)
        except Cancelled as cancelled:
            raise WaitCancelled(self.report.name, str(cancelled)) from cancelled.__cause__
        except BackendUnavailable as silent:
            raise self.report.unavailable(silent) from silent
        except DeadlineReached as late:
            if (silence := self.report.silence(late, self.ticket)) is not None:
                raise self.report.unavailable(silence) from silence
            raise self.report.busy() from None

    def withdraw(self) -> None:
        if self.ticket is not None:
            self.ticket.withdraw()

    def _enqueue_and_wait(self, ticket: Ticket) -> Steps[None]:
        """Put ``ticket`` into its queues, wait until it is next in all, and grant it."""
        if not self.engine.backend.capabilities.ordered:
            from coordlock.kernel.polling import poll

            queues = yield from poll(self.engine, ticket, self.report, self.once)
            self.engine.grant(ticket, queues, self.caller)
            return
        looks_first = self.once and self.engine.refusals.looks_first(self.claims)
        queues = list((yield from ticket.enqueue(unless_blocked=looks_first)))
        if not ticket.contenders or any(len(one.contenders) > 1 or one.omitted for one in queues):
            queues = list(map(self.engine.tickets.deduplicated, queues))
            try:
                yield from self._wait_until_next(ticket, queues)
            finally:
                if self.undetect is not None:
                    self.undetect()
                    self.undetect = None
        # The snapshots prove the grant: no contender enters a queue before me, and one that has
        # departed never returns. And I am still in my queues: see `_wait`.
        self.engine.grant(ticket, queues, self.caller)

    def _wait_until_next(self, ticket: Ticket, queues: list[Snapshot]) -> Steps[None]:
        """Wait until nobody is in the way of ``ticket`` in any of its ``queues``."""
        while True:
            if ticket.departures is not None and ticket.departures.in_doubt:
                yield from self._read(ticket, queues)
            # A try that was refused is in no queue; the snapshots show what was in its way.
            mine = ticket.contenders or tuple(map(newcomer, ticket.entries))
            for snapshot, me in zip(queues, mine, strict=True):
                if (other := mismatch(snapshot, me)) is not None:
                    raise (yield from self._misused(snapshot.queue, me, other))
            waiting_for = [blockers(*pair) for pair in zip(queues, mine, strict=True)]
            if any(waiting_for):
                self.report.waits(ticket, mine, queues, waiting_for)
                if self.once:
                    raise (yield from self._refused(ticket, queues, waiting_for))
                if ENDING.reason is not None:
                    raise Cancelled(ENDING.reason)
                self._detect_deadlocks(ticket)
                yield from self._wait(ticket, queues, waiting_for)
                continue
            # NL conflicts with no mode, so what its snapshot omits does not matter.
            if not any(
                one.omitted and not one.harmless and entry.claim is not Mode.NL
                for one, entry in zip(queues, ticket.entries, strict=True)
            ):
                return
            yield from self._read(ticket, queues, whole=True)

    def _wait(
        self, ticket: Ticket, queues: list[Snapshot], waiting_for: list[tuple[Contender, ...]]
    ) -> Steps[None]:
        """Wait until one of ``waiting_for`` has left; then ``queues`` show it, or are in doubt.

        No read is needed when `next_in_line` proves the grant. The watches on my own contenders,
        which were set before, prove that I am still there: the backend tells of departures in the
        order in which they happen. In two cases the order is not certain, and the queues are read:

        * The connection was broken, or a watch was being set. The backend says so with the
          departure.
        * Several contenders left at once, as when my session ends and takes all of its contenders.
          So if the one that left is this client's own, its withdrawal must have removed it: see
          `_was_withdrawn`.
        """
        # Looked up now, because tickets are forgotten when their contenders are gone.
        own_tickets = {one: self.engine.tickets.own(one) for ahead in waiting_for for one in ahead}
        # Behind others than the one ahead, and those not of this client, I read before I am
        # granted, and see whether I am still there.
        backend = self.engine.backend
        later = any(one.omitted and not one.harmless for one in queues)
        later = later and not any(own_tickets.values()) and not backend.tells_first
        departure = ticket.departure(queues, waiting_for, later=later)
        yield from self.report.ask_before_deadline(departure, ticket)
        yield departure
        departures = ticket.departures
        assert departures is not None
        departed = departures.seen  # more may go meanwhile
        if later:
            departures.doubt()
        for one, own in own_tickets.items():
            if own is None or one not in departed or departures.in_doubt:
                continue
            if not (yield from self._was_withdrawn(one, own, ticket)):
                departures.doubt()
        if departures.in_doubt:
            return
        for number, ahead in enumerate(waiting_for):
            if departed.isdisjoint(ahead):
                continue
            me, nearest = ticket.contenders[number], ahead[-1]
            hands_over = nearest in departed and (
                _hands_over(own_tickets[nearest], nearest, me)
                or (nearest.claim == me.claim and backend.was_first(nearest))
            )
            known = departed.union(backend.departed(queues[number]))
            left = next_in_line(queues[number], me, known, nearest if hands_over else None)
            if left is None:
                departures.doubt()
            else:
                queues[number] = left

    def _was_withdrawn(self, one: Contender, own: Ticket, ticket: Ticket) -> Steps[bool]:
        """Whether the withdrawal of ``own``, and nothing else, has removed its contender ``one``.

        Its answer tells, which comes at about the same time as the departure; ``ticket`` waits for
        it. A withdrawal without an answer proves nothing, nor does one that has removed another
        contender of the same entry.
        """
        if not own.is_leaving or own.own(one) is None:
            return False
        answer = ticket.unless_lost(own.withdraw())
        yield within(self.engine.timers, answer, PATIENCE)
        return own.withdrawal.removed_alone

    def _read(self, ticket: Ticket, queues: list[Snapshot], *, whole: bool = False) -> Steps[None]:
        """Read all ``queues`` again, each up to me.

        All of them: that my turn has come in one queue counts only while I stand in the others.
        The readings need not be of one moment. A removal after one of them is like a removal after
        the grant, or while the answer about a single lock is on its way: my watch tells of it.
        With ``whole``, the reading lists all contenders that conflict with me and omits none.
        """
        ask = partial(self._ask, ticket, whole)
        snapshots = yield from retried(ask, self.engine.timers)
        for number, (snapshot, me) in enumerate(zip(snapshots, ticket.contenders, strict=True)):
            # Not by its id: a late attempt may have made another contender of the same entry.
            if not any(are_same(one, me) for one in snapshot.contenders):
                raise Evicted(self.report.called or snapshot.queue)
            if ticket.departures is not None:
                ticket.departures.stand_again(snapshot.contenders)
            queues[number] = snapshot

    def _ask(self, ticket: Ticket, whole: bool) -> Promise[tuple[Snapshot, ...]]:
        """Send the requests of `_read`."""
        if ticket.departures is not None:
            ticket.departures.reads()
        backend = self.engine.backend
        pairs = zip(ticket.entries, ticket.contenders, strict=True)
        asked = (backend.snapshot(entry.queue, me, conflicting=whole) for entry, me in pairs)
        return ticket.unless_lost(all_of(asked))

    # Rare cases

    def _go_on_or_raise(self, ticket: Ticket, gone: SessionLost | Evicted) -> Steps[None]:
        """Withdraw ``ticket``, which is lost. Return to send another one, or raise the loss."""
        ticket.withdraw()
        lost: CoordlockError | None = gone
        if isinstance(gone, Evicted):
            # The end of a session removes its contenders, too: a heartbeat tells which it was.
            probe = ticket.probe or ticket.session.probe()
            yield within(self.engine.timers, probe, PATIENCE)
            lost = copy(ticket.session.ended)
        self.engine.check()
        if lost is None:
            raise copy(gone) from None
        if not ticket.contenders and self.lost_sessions < _SESSIONS - 1:
            self.lost_sessions += 1  # it had no position in the queue, so it has lost none
        else:
            raise lost from None

    def _refused(
        self, ticket: Ticket, queues: list[Snapshot], waiting_for: list[tuple[Contender, ...]]
    ) -> Steps[AcquireTimeout]:
        """Note that a try would have to wait, and withdraw it; its error."""
        refused = zip(queues, waiting_for, strict=True)
        self.engine.refusals.note(one.queue for one, ahead in refused if ahead)
        yield within(self.engine.timers, ticket.withdraw(), PATIENCE)
        return self.report.busy()

    def _misused(self, queue: str, me: Contender, other: Contender) -> Steps[NameConflict]:
        """The error for ``other``, which uses the queue as another kind of lock."""
        other = yield from identified(self.engine, queue, other)
        name = self.report.called or queue
        return NameConflict(name, str(me.claim), str(other.claim), str(other))

    def _detect_deadlocks(self, ticket: Ticket) -> None:
        """Look for deadlocks if the caller keeps other positions while it waits."""
        delay, caller = self.engine.settings.deadlock_delay, self.caller
        if self.undetect is not None or delay is None or caller is None:
            return
        if not self.engine.backend.capabilities.publishing:
            return
        if len(ticket.entries) > 1 or self.engine.held_by(caller):
            from coordlock.kernel.deadlock_detector import DeadlockDetector

            self.undetect = DeadlockDetector.of(self.engine, delay).watch(ticket, caller)


def _hands_over(predecessor: Ticket | None, nearest: Contender, me: Contender) -> bool:
    """Whether I am next when ``nearest``, a contender of the ticket ``predecessor``, has left.

    That is so if it was granted and we ask for the same: see `next_in_line`. Its id alone does not
    tell that it was granted: a lost attempt may have made another contender of the same entry.
    """
    if predecessor is None or predecessor.granted_at is None:
        return False
    return predecessor.own(nearest) is not None and nearest.claim == me.claim
