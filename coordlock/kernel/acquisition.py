"""The protocol by which a lock is acquired, written once for all backends and both drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Final

from coordlock.errors import (
    CoordlockError,
    Evicted,
    NameConflict,
    SessionLost,
    WaitCancelled,
    WaitError,
)
from coordlock.kernel.engine import Engine
from coordlock.kernel.report import ANSWER_TIMEOUT_S, Report, identified
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.model.admission import blockers, mismatch, newcomer, omits_blockers
from coordlock.model.claim import AnyClaim, Permit
from coordlock.model.contender import Announcement, Contender, Snapshot, find_same
from coordlock.model.handover import Departure, after
from coordlock.runtime.caller import Caller
from coordlock.runtime.clock import within
from coordlock.runtime.deadline import ENDING, Cancellation, Cancelled
from coordlock.runtime.driver import Call, Steps
from coordlock.runtime.promise import Promise
from coordlock.runtime.recorder import RECORDER

__all__ = ["acquisition", "note_refusals"]

Blockers = tuple[Contender, ...]
Queues = tuple[Snapshot, ...]

#: In how many sessions an acquire tries to enter its queues before it raises `SessionLost`.
_SESSION_ATTEMPTS: Final = 3
#: Of how many queues a refused try is remembered, until one is granted.
_REMEMBERED_QUEUES: Final = 1024
#: Seconds between two attempts where the service keeps no order: the first, and what they double
#: to, each at random.
_POLLING_PAUSES_S: Final = (0.05, 0.4)


def acquisition(
    engine: Engine,
    claims: Mapping[str, AnyClaim],
    timeout: float | None = None,
    caller: Caller | None = None,
    label: str | None = None,
    cancellation: Cancellation | None = None,
    announcement: Announcement | None = None,
    kind: str = "lock",
    name: str | None = None,
    max_hold: float | None = None,
) -> Steps[Ticket]:
    """Acquire the queues in ``claims``, each as its claim, all at once; the granted ticket.

    It ends after ``timeout`` seconds; None waits for ever, and 0 tries once. ``caller`` is warned
    when it waits for itself. ``label`` is shown in place of the client's. The contender publishes
    ``announcement`` from the beginning. ``kind`` and ``name`` are what errors and the log
    call it; without a ``name``, that of its queues. It may be held for ``max_hold`` seconds.

    Raises `WaitError`: `AcquireTimeout` when the lock is busy until then, `WaitUnavailable`
    where the service is silent, `SessionLost` or `Evicted` when a contender is lost while it waits,
    `DeadlockDetected` when it waits in a cycle with others, `WaitCancelled` when
    ``cancellation`` comes or the process is to end. Raises `NameConflict`, and what else the
    backend raises. However it ends without a grant, the ticket is withdrawn.
    """
    if kind == "lock" and set(map(type, claims.values())) == {Permit}:
        kind = "semaphore"
    began = engine.clock.now()  # before the deadline is set, so that a wait is never too short
    once = timeout == 0
    seconds = engine.settings.request_timeout if once else timeout
    deadline = engine.until(seconds, cancellation)
    report = Report(engine, claims, name, caller, once, deadline, began)
    attempt = _Acquisition(engine, caller, report, once)
    ticket: Ticket | None = None
    if cancellation is not None and cancellation.reason is not None:
        raise WaitCancelled(report.name, cancellation.reason, kind=kind)
    call: Call = yield Call  # the driver answers with the run of this protocol
    former = call.deadline
    try:
        call.deadline = deadline  # as `bounded` does it, without a step more for each promise
        if RECORDER.listeners:
            report.record(kind)
        while True:
            session = yield from engine.session()
            ticket = engine.ticket(session, claims, label, announcement, call)
            ticket.kind, ticket.called = kind, name
            try:
                if engine.backend.capabilities.ordered:
                    looks_first = once and _looks_first(engine, claims)
                    queues = yield from ticket.enqueue(unless_blocked=looks_first)
                else:
                    queues = yield from attempt.poll(ticket)
                crowded = [queue for queue in queues if len(queue.contenders) > 1 or queue.omitted]
                if crowded or not ticket.contenders:
                    queues = yield from attempt.wait(ticket, queues)
                # The snapshots prove the grant: no contender enters a queue before me, and one
                # that has left never returns. And I am still there: see `handover`.
                engine.tickets.grant(ticket, queues, caller, max_hold)
                if once:
                    _forget_refusals(engine, claims)
                ticket.waited = engine.clock.now() - began
                if report.recording is not None:
                    report.recording.granted(ticket)
                return ticket
            except (SessionLost, Evicted) as gone:
                yield from attempt.resend_or_raise(ticket, gone)
    except BaseException as error:
        if ticket is not None:
            ticket.withdraw()  # where a signal handler strikes here, the sweep does it
        ended = report.error_for(error, ticket)
        if isinstance(ended, WaitError):
            ended.kind = kind
        if ended is not error:
            raise ended from ended.__cause__
        raise
    finally:
        call.deadline = former


@dataclass(slots=True, eq=False)
class _Acquisition:
    """One call of acquire, where it is not granted the lock at once."""

    engine: Engine
    caller: Caller | None
    report: Report
    once: bool
    #: The contenders that it waits for, and the tickets of those that are this client's.
    own: dict[Contender, Ticket | None] = field(default_factory=dict)
    #: Ends the detection of deadlocks, where it has begun.
    undetect: Callable[[], None] | None = None
    #: How many sessions in a row have ended before the contender was in its queues.
    lost_sessions: int = 0

    def wait(self, ticket: Ticket, queues: Queues) -> Steps[Queues]:
        """Wait until no contender is in the way of ``ticket`` in any queue; the queues then."""
        # A try that was refused has no contenders; the queues show what is in its way.
        mine = ticket.contenders or tuple(map(newcomer, ticket.entries))
        yield from self._check_kind(queues, mine)
        try:
            while True:
                blocked_by = list(map(blockers, queues, mine))
                if any(blocked_by):
                    yield from self._may_wait(ticket, mine, queues, blocked_by)
                    departures = yield from self._departures(ticket, queues, blocked_by)
                    queues = after(queues, mine, departures) or (yield from self._read(ticket))
                elif any(map(omits_blockers, queues, mine)):
                    queues = yield from self._read(ticket, conflicting=True)
                else:
                    return queues
        finally:
            if self.undetect is not None:
                self.undetect()
                self.undetect = None

    def _departures(
        self, ticket: Ticket, queues: Queues, blocked_by: Iterable[Blockers]
    ) -> Steps[dict[Contender, Departure]]:
        """Wait until a contender in ``blocked_by`` has left; which have, and what that proves."""
        tickets, pairs = self.engine.tickets, zip(queues, blocked_by, strict=True)
        blockers = {blocker: snapshot.revision for snapshot, some in pairs for blocker in some}
        for blocker in blockers:  # now, because tickets are forgotten when they are gone
            self.own.setdefault(blocker, tickets.own(blocker))
        departure = ticket.departure(queues, blockers)
        yield from self.report.ask_before_deadline(departure, ticket)
        yield departure
        self.report.departed()
        departures = ticket.waiting.departures()
        for blocker, its in departures.items():
            if its is not Departure.UNORDERED:
                departures[blocker] = yield from self._proved(blocker, its, ticket)
        return departures

    def _proved(self, blocker: Contender, departure: Departure, ticket: Ticket) -> Steps[Departure]:
        """What the ``departure`` proves, where ``blocker`` may be this client's own contender.

        The end of a session removes all its contenders in one step, which services report in any
        order. So nothing is proved unless a withdrawal has removed that contender, and it alone.
        The answer to the withdrawal comes at about the same time; ``ticket`` waits for it.
        """
        if (own := self.own.get(blocker)) is None:
            is_own = blocker.session and blocker.session == ticket.contenders[0].session
            return Departure.UNORDERED if is_own else departure
        # Not by its id: a late attempt may have made another contender of the same entry.
        if not own.is_leaving or find_same(blocker, own.contenders) is None:
            return Departure.UNORDERED
        yield within(self.engine.timers, ticket.unless_lost(own.withdraw()), ANSWER_TIMEOUT_S)
        if not own.removed_alone:
            return Departure.UNORDERED
        return departure if own.granted_at is None else Departure.FIRST

    def _read(self, ticket: Ticket, *, conflicting: bool = False) -> Steps[Queues]:
        """All queues anew: that my turn has come in one counts only while I stand in the others.

        With ``conflicting``, they list all contenders that conflict with me.
        """

        def read() -> Promise[Queues]:
            return ticket.unless_lost(ticket.waiting.read(conflicting=conflicting))

        queues = yield from retried(read, self.engine.timers, pause=ticket.pause)
        for snapshot, me in zip(queues, ticket.contenders, strict=True):
            if find_same(me, snapshot.contenders) is None:
                raise Evicted(self.report.called or snapshot.queue)
        yield from self._check_kind(queues, ticket.contenders)
        return queues

    # What may keep it from waiting

    def _check_kind(self, queues: Queues, mine: Sequence[Contender]) -> Steps[None]:
        """Raise `NameConflict` where one of ``queues`` is in use as another kind of lock."""
        for snapshot, me in zip(queues, mine, strict=True):
            if (other := mismatch(snapshot, me)) is not None:
                other = yield from identified(self.engine, snapshot.queue, other)
                name = self.report.called or snapshot.queue
                raise NameConflict(name, str(me.claim), str(other.claim), str(other))

    def _may_wait(
        self,
        ticket: Ticket,
        mine: Sequence[Contender],
        queues: Queues,
        blocked_by: Sequence[Blockers],
    ) -> Steps[None]:
        """Note that ``mine`` are ``blocked_by`` those. Raise where that must not be."""
        self.report.note_wait(ticket, mine, queues, blocked_by)
        if self.once:
            refused = zip(queues, blocked_by, strict=True)
            note_refusals(self.engine, [queue.queue for queue, some in refused if some])
            yield within(self.engine.timers, ticket.withdraw(), ANSWER_TIMEOUT_S)
            raise self.report.timeout_error()
        if ENDING.reason is not None:
            raise Cancelled(ENDING.reason)
        self._detect_deadlocks(ticket)

    # Rare cases

    def poll(self, ticket: Ticket) -> Steps[Queues]:
        """Ask a service without order until ``ticket`` is in its queues; the queues.

        It reports no departures, and contenders that ask at the same time may refuse each other.
        So each waits a time of its own before it asks again.
        """
        pause, longest = _POLLING_PAUSES_S
        while True:
            queues = yield from ticket.enqueue(unless_blocked=True)
            if ticket.contenders:
                return queues
            mine = tuple(map(newcomer, ticket.entries))
            yield from self._may_wait(ticket, mine, queues, list(map(blockers, queues, mine)))
            yield ticket.pause(self.engine.timers.jitter(pause))
            pause = min(2 * pause, longest)

    def resend_or_raise(self, ticket: Ticket, gone: SessionLost | Evicted) -> Steps[None]:
        """Withdraw ``ticket``, which is lost. Return to send another one, or raise the loss."""
        ticket.withdraw()
        lost: CoordlockError | None = gone
        if isinstance(gone, Evicted):
            # The end of a session removes its contenders, too: a heartbeat shows which it was.
            probe = ticket.probe or ticket.session.probe()
            yield within(self.engine.timers, probe, ANSWER_TIMEOUT_S)
            lost = copy(ticket.session.ended)
        self.engine.check()
        if lost is None:
            raise copy(gone) from None
        if not ticket.contenders and self.lost_sessions < _SESSION_ATTEMPTS - 1:
            self.lost_sessions += 1  # it had no position in the queue, so it has lost none
        else:
            raise lost from None

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


# A try that enqueues in order to look stands in the way of the next one until it has withdrawn. So
# pollers that do nothing else would refuse each other a lock that no client holds.


def note_refusals(engine: Engine, queues: Iterable[str]) -> None:
    """A try was refused for what is in ``queues``, or is likely to be."""
    refusals = engine.refusals
    with engine.lock:
        for queue in queues:
            refusals.pop(queue, None)
            refusals[queue] = None
        for queue in list(refusals)[:-_REMEMBERED_QUEUES]:
            del refusals[queue]


def _forget_refusals(engine: Engine, queues: Iterable[str]) -> None:
    """A try for what is in ``queues`` was granted."""
    for queue in queues:
        engine.refusals.pop(queue, None)


def _looks_first(engine: Engine, claims: Mapping[str, AnyClaim]) -> bool:
    """Whether a try takes no position where it would be refused.

    Where that costs a request more, it does so only if the last such try was refused.
    """
    one_step = engine.backend.capabilities.one_step
    is_mode = len(claims) == 1 and not isinstance(next(iter(claims.values())), Permit)
    if one_step == "all" or (one_step == "mode" and is_mode):
        return True
    return not engine.refusals.keys().isdisjoint(claims)
