"""The protocol by which a lock is acquired, written once for all backends and both drivers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from typing import TYPE_CHECKING, Final

from coordlock.errors import (
    AcquireCancelled,
    BackendUnavailable,
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
from coordlock.model.admission import blockers, mismatch, newcomer, next_in_line
from coordlock.model.claim import AnyClaim, Mode, Permit
from coordlock.model.contender import Contender, Snapshot, are_same
from coordlock.model.names import joined
from coordlock.runtime.caller import Caller
from coordlock.runtime.cancellation import ENDING, Cancellation
from coordlock.runtime.clock import within
from coordlock.runtime.deadline import Cancelled, Deadline, DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, all_of

if TYPE_CHECKING:
    from coordlock.kernel import watchdog
    from coordlock.kernel.announcement import Announcement
else:
    watchdog = Lazily("coordlock.kernel.watchdog")

__all__ = ["acquisition"]

log = Log("coordlock")

#: New sessions that a contender may need before it stands in the queue for the first time.
_SESSIONS: Final = 3


class _Acquisition:
    """One call of acquire."""

    __slots__ = (
        "announcement",
        "caller",
        "claims",
        "engine",
        "label",
        "report",
        "ticket",
        "watchdog",
    )

    def __init__(
        self,
        engine: Engine,
        claims: Mapping[str, AnyClaim],
        caller: Caller | None,
        label: str | None,
        report: Report,
        announcement: Announcement | None,
    ) -> None:
        self.engine = engine
        self.claims = claims
        self.caller = caller
        self.label = label
        self.report = report
        self.announcement = announcement
        self.ticket: Ticket | None = None
        self.watchdog: watchdog.Watchdog | None = None

    def steps(self, once: bool) -> Steps[Ticket]:
        try:
            attempts = 0
            while True:
                session = yield from self.engine.session()
                ticket = self.engine.ticket(session, self.claims, self.label, self.announcement)
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
                    if isinstance(gone, Evicted) and lost is None:
                        raise Evicted(gone.name) from None
                    assert lost is not None
                    # Without a place in the queue there is nothing to lose: a new session may try.
                    attempts = 0 if ticket.contenders else attempts + 1
                    may_go_on = attempts < _SESSIONS if attempts else self._may_requeue(lost, once)
                    if not may_go_on:
                        raise lost from None
                except BaseException:
                    ticket.withdraw()
                    raise
        except Cancelled as cancelled:
            raise AcquireCancelled(self.report.name, str(cancelled)) from cancelled.__cause__
        except BackendUnavailable as silent:
            raise self.report.unavailable(silent) from silent
        except DeadlineReached as late:
            if (silence := self.report.silence(late, self.ticket, once)) is not None:
                raise self.report.unavailable(silence) from silence
            raise self.report.busy(once) from None

    def _may_requeue(self, error: CoordlockError, once: bool) -> bool:
        """Whether to go on at the end of the queue, in place of ``error``; says so."""
        if once or not self.engine.settings.requeue:
            return False
        text = "lock %r: %s; waiting goes on at the end of the queue"
        log.warning(text, self.report.name, error)
        return True

    def _cause(self, session: Session) -> Steps[CoordlockError | None]:
        """Why a contender has gone that was told to be: its session's end, or None."""
        # The end of a session removes its contenders too: ask which it was.
        yield within(self.engine.timers, session.beat(), PATIENCE)
        return copy(session.ended)

    def _queue(self, ticket: Ticket, once: bool) -> Steps[None]:
        looks = once and self._looks
        queues = list((yield from ticket.enqueue(unless_blocked=looks)))
        if not ticket.contenders or any(len(one.contenders) > 1 or one.omitted for one in queues):
            queues = list(map(self.engine.deduplicated, queues))
            try:
                yield from self._turn(ticket, queues, once)
            finally:
                if self.watchdog is not None:
                    self.watchdog.stop()
                    self.watchdog = None
        # No contender enters before me, so none that is not in these snapshots can be in my way,
        # and one that has departed never returns. And I am still there: see `_wait`.
        self.engine.grant(ticket, queues, self.caller)
        self.report.granted(ticket)

    @property
    def _looks(self) -> bool:
        """Whether a try takes no place where it would be refused.

        Otherwise pollers stand in each other's way. Where that costs a request more, it does so
        only if such a try was refused lately.
        """
        one_step, claims = self.engine.backend.capabilities.one_step, self.claims.values()
        if one_step == "all":
            return True
        if one_step == "mode" and len(claims) == 1 and not isinstance(next(iter(claims)), Permit):
            return True
        return self.engine.refusals.are_recent(self.claims)

    def _turn(self, ticket: Ticket, queues: list[Snapshot], once: bool) -> Steps[None]:
        """Wait until nobody is in the way of ``ticket`` in any of its ``queues``."""
        while True:
            waiting_for = []
            # A try that was refused has no places; the queues tell why.
            places = ticket.contenders or tuple(map(newcomer, ticket.entries))
            for snapshot, me in zip(queues, places, strict=True):
                if (other := mismatch(snapshot, me)) is not None:
                    raise (yield from self._misused(snapshot.queue, me, other))
                waiting_for.append(blockers(snapshot, me))
            if any(waiting_for):
                self.report.waits(ticket, places, queues, waiting_for)
                if once:
                    refused = zip(queues, waiting_for, strict=True)
                    self.engine.refusals.note(one.queue for one, ahead in refused if ahead)
                    yield within(self.engine.timers, ticket.withdraw(), PATIENCE)
                    raise self.report.busy(once)
                if ENDING.reason is not None:
                    raise Cancelled(ENDING.reason)
                self._watch(ticket)
                yield from self._wait(ticket, queues, waiting_for)
                continue
            # Who asks for NL waits for nobody, whoever is left out.
            omitting = [
                number
                for number, one in enumerate(queues)
                if one.omitted and ticket.entries[number].claim is not Mode.NL
            ]
            if not omitting:
                return
            yield from self._read(ticket, queues, omitting, whole=True)

    def _misused(self, queue: str, me: Contender, other: Contender) -> Steps[QueueMismatch]:
        """The error for ``other``, which uses the queue as another kind of lock."""
        other = yield from identified(self.engine, queue, other)
        return QueueMismatch(queue, str(me.claim), str(other.claim), str(other))

    def _watch(self, ticket: Ticket) -> None:
        """Look out for a deadlock, where the caller keeps other places while it waits."""
        delay, caller = self.engine.settings.deadlock_delay, self.caller
        if self.watchdog is not None or delay is None or caller is None:
            return
        if len(ticket.entries) > 1 or self.engine.holds_any(caller):
            self.watchdog = watchdog.Watchdog(self.engine, ticket, caller, delay)

    def _wait(
        self, ticket: Ticket, queues: list[Snapshot], waiting_for: list[tuple[Contender, ...]]
    ) -> Steps[None]:
        """Wait until one of ``waiting_for`` has left; ``queues`` are as after that, with me in all.

        No read is needed when `next_in_line` proves the grant. That I am still there, the watches
        on my own contenders tell: they were set before, and departures are told in the order in
        which they happen. Two things can be told in any order, and then the queues are read: what
        happened while the connection was broken or while a watch was being set, which the backend
        tells with the departure; and what happened at once, as when my session ends and takes all
        of its contenders. So those of this client's own that have gone must have been removed by
        their withdrawal: see `_left`.
        """
        # Now, because they may be forgotten later.
        owns = {one: self.engine.own(one) for ahead in waiting_for for one in ahead}
        departure = ticket.departure(queues, waiting_for)
        yield from self.report.on_time(departure, ticket)
        assert ticket.departures is not None
        departed = ticket.departures.seen  # more may go meanwhile
        doubtful = ticket.departures.in_doubt
        for one, own in owns.items():
            if own is not None and one in departed and not doubtful:
                doubtful = not (yield from self._left(one, own, ticket))
        if doubtful:
            yield from self._read(ticket, queues, range(len(queues)))
            return
        unproved = []
        for number, ahead in enumerate(waiting_for):
            if departed.isdisjoint(ahead):
                continue
            me, nearest = ticket.contenders[number], ahead[-1]
            hands_over = nearest in departed and _hands_over(owns[nearest], nearest, me)
            left = next_in_line(queues[number], me, departed, nearest if hands_over else None)
            if left is None:
                unproved.append(number)
            else:
                queues[number] = left
        yield from self._read(ticket, queues, unproved)

    def _left(self, one: Contender, own: Ticket, ticket: Ticket) -> Steps[bool]:
        """Whether ``one``, which has departed, was removed by the withdrawal of ``own``, and alone.

        The answer to the withdrawal tells, which comes at about the same time as the departure. An
        attempt without answer proves nothing, nor does another contender of the same entry.
        """
        if not own.is_leaving or own.own(one) is None:
            return False
        answer = ticket.unless_lost(own.withdraw())
        yield within(self.engine.timers, answer, PATIENCE)
        return own.removed_alone

    def _read(
        self,
        ticket: Ticket,
        queues: list[Snapshot],
        numbers: Collection[int],
        *,
        whole: bool = False,
    ) -> Steps[None]:
        """Read those of ``queues`` with the ``numbers``, as far as me.

        With ``whole``, all that conflict with me: no other can be in my way.
        """
        if not numbers:
            return
        backend = self.engine.backend
        if ticket.departures is not None:
            ticket.departures.in_doubt = False

        def ask() -> Promise[tuple[Snapshot, ...]]:
            places = ((ticket.entries[one].queue, ticket.contenders[one]) for one in numbers)
            asked = (backend.snapshot(queue, me, conflicting=whole) for queue, me in places)
            return ticket.unless_lost(all_of(asked))

        snapshots = yield from retried(ask, self.engine.timers)
        for number, snapshot in zip(numbers, snapshots, strict=True):
            me = ticket.contenders[number]
            # An attempt that arrived late may have made another one of the same entry.
            if not any(are_same(one, me) for one in snapshot.contenders):
                raise Evicted(snapshot.queue)
            if ticket.departures is not None:
                ticket.departures.stand_again(snapshot.contenders)
            queues[number] = snapshot


def _hands_over(predecessor: Ticket | None, nearest: Contender, me: Contender) -> bool:
    """Whether ``nearest``, a contender of ``predecessor``, leaves me next when it goes.

    It does where it was granted and we ask for the same: see `next_in_line`. An id alone doesn't
    tell what was granted: a lost attempt may have left another contender of the same entry behind.
    """
    if predecessor is None or predecessor.granted is None:
        return False
    return predecessor.own(nearest) is not None and nearest.claim == me.claim


def acquisition(
    engine: Engine,
    claims: Mapping[str, AnyClaim],
    timeout: float | None = None,
    caller: Caller | None = None,
    label: str | None = None,
    cancellations: tuple[Cancellation, ...] = (),
    announcement: Announcement | None = None,
) -> Steps[Ticket]:
    """Acquire the queues in ``claims``, each as its claim, all at once; the granted ticket.

    It ends after ``timeout`` seconds, None waits for ever and 0 tries once; ``caller`` is warned
    when it waits for itself, and ``label`` is shown in place of the client's; ``announcement`` is
    published from the beginning.

    Raises `NotAcquired`: `AcquireTimeout` when the lock is busy until then, `AcquireUnavailable`
    where the service is silent, `SessionLost` or `Evicted` when a contender is lost while it waits,
    `DeadlockDetected` when it waits in a circle with others, `AcquireCancelled` when one of
    ``cancellations`` comes or the process is to end. Raises `QueueMismatch`, and what else the
    backend raises. However it ends without a grant, the ticket is withdrawn.
    """
    once = timeout == 0
    deadline = engine.deadline(engine.settings.request_timeout if once else timeout)
    for one in cancellations:
        if one.reason is not None:
            raise AcquireCancelled(joined(claims), one.reason)
    if ENDING.waits is not None:
        cancellations = (*cancellations, ENDING.waits)
    yield Deadline.at_latest(deadline, engine.clock, cancellations) if cancellations else deadline
    report = Report(engine, claims, caller, None if once else deadline)
    attempt = _Acquisition(engine, claims, caller, label, report, announcement)
    try:
        return (yield from attempt.steps(once))
    except BaseException:
        if attempt.ticket is not None:
            attempt.ticket.withdraw()  # again, because Ctrl-C may have kept the first call from it
        raise
