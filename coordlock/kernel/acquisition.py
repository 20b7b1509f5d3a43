"""The protocol by which a lock is acquired, written once for all backends and both drivers."""

from __future__ import annotations

import time
from contextlib import suppress
from copy import copy
from typing import Final

from coordlock.errors import (
    AcquireTimeout,
    AcquireUnavailable,
    BackendUnavailable,
    Evicted,
    QueueMismatch,
    SessionLost,
)
from coordlock.kernel.link import Link
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.log import Log
from coordlock.model.admission import blockers, mismatch, next_in_line
from coordlock.model.claim import Claim, Permit
from coordlock.model.contender import Contender, Snapshot, are_same
from coordlock.runtime.caller import Caller, described
from coordlock.runtime.clock import Timer, within
from coordlock.runtime.driver import DeadlineReached, Steps

__all__ = ["acquisition"]

log = Log("coordlock")

#: New sessions that a contender may need before it stands in the queue for the first time.
_SESSIONS: Final = 3
#: How long, in seconds, to wait for an answer that is nice to have.
_PATIENCE: Final = 0.5
#: After how long, in seconds, a caller that waits for itself is told.
_ALONE: Final = 1.0


class _Acquisition:
    """One call of acquire: what it knows of the queue, for the error that may end it."""

    __slots__ = (
        "ahead",
        "caller",
        "claim",
        "link",
        "position",
        "queue",
        "started",
        "ticket",
        "warning",
    )

    def __init__(self, link: Link, queue: str, claim: Claim, caller: Caller | None) -> None:
        self.link = link
        self.queue = queue
        self.claim = claim
        self.started = link.clock.now()
        self.position: int | None = None
        self.ahead: Contender | None = None
        self.ticket: Ticket | None = None
        self.caller = caller
        self.warning: Timer | None = None

    def steps(self, once: bool) -> Steps[Ticket]:
        try:
            for attempt in range(_SESSIONS):
                session = yield from self.link.session()
                self.ticket = ticket = self.link.ticket(session, self.queue, self.claim)
                try:
                    yield from self._queue(ticket, once)
                    return ticket
                except SessionLost:
                    ticket.withdraw()
                    # Without a place in the queue there is nothing to lose: a new session may try.
                    if ticket.contender is not None or attempt == _SESSIONS - 1:
                        raise
                except Evicted:
                    ticket.withdraw()
                    # The end of a session removes its contenders too: ask which it was.
                    yield within(self.link.timers, session.beat(), _PATIENCE)
                    raise copy(session.ended or Evicted(self.queue)) from None
                except BaseException:
                    ticket.withdraw()
                    raise
        except DeadlineReached as late:
            if self.position is None:
                unanswered = self.link.silent(late)
                if once:
                    raise unanswered from late.__cause__
                raise self._timeout(unanswered) from unanswered
            if once:
                raise self._timeout() from None
            if (silent := (yield from self._outage(late))) is not None:
                raise self._timeout(silent) from silent
            if self.ahead is not None:
                self.ahead = yield from self._identified(self.ahead)
            raise self._timeout() from None
        finally:
            if self.warning is not None:
                self.warning.cancel()
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _queue(self, ticket: Ticket, once: bool) -> Steps[None]:
        snapshot = self.link.deduplicated((yield from ticket.enqueue()))
        me = ticket.contender
        assert me is not None
        while True:
            if (other := mismatch(snapshot, me)) is not None:
                other = yield from self._identified(other)
                raise QueueMismatch(self.queue, str(self.claim), str(other.claim), str(other))
            waiting_for = blockers(snapshot, me)
            if not waiting_for and not snapshot.omitted:
                ticket.admitted = me
                ticket.granted = time.time(), self.caller
                self.link.granted(ticket)
                # Nobody enters before me, so nobody who is not in this snapshot can be in my way,
                # and who has departed never returns. And I am still in the queue: see `_wait`.
                ticket.check()
                ticket.guard(snapshot.revision)
                return
            if not waiting_for:
                snapshot = yield from self._read(ticket, None)
                continue
            self.position = snapshot.omitted + len(snapshot.before(me))
            self.ahead = waiting_for[-1]
            if once:
                yield within(self.link.timers, ticket.withdraw(), _PATIENCE)
                raise self._timeout()
            if self.warning is None and self._own_grant() is not None:
                when = self.link.clock.now() + _ALONE
                self.warning = self.link.timers.call_at(when, self._warn)
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
        owns = tuple(map(self.link.own, waiting_for))  # now: later they may be forgotten
        ticket.guard(snapshot.revision, at_once=True)
        yield ticket.departure(waiting_for, snapshot.revision)
        departed = ticket.departed  # more may go meanwhile
        doubtful = ticket.doubted
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
        if not own.withdrawn or own.contender is None or not are_same(own.contender, one):
            return False
        answer = ticket.unless_lost(own.withdraw())
        yield within(self.link.timers, answer, _PATIENCE)
        return own.withdrew

    def _read(self, ticket: Ticket, upto: Contender | None) -> Steps[Snapshot]:
        backend, timers = self.link.backend, self.link.timers
        ticket.doubted = False
        snapshot = yield from retried(
            lambda: ticket.unless_lost(backend.snapshot(self.queue, upto)), timers
        )
        me = ticket.contender
        # An attempt that arrived late may have made another one of the same entry.
        if me is None or not any(are_same(one, me) for one in snapshot.contenders):
            raise Evicted(self.queue)
        return snapshot

    def _identified(self, contender: Contender) -> Steps[Contender]:
        """``contender`` with its owner, looked up where the queue was read without them."""
        if contender.owner is not None:
            return contender
        answer = self.link.backend.snapshot(self.queue, contender, owners=True)
        with suppress(DeadlineReached):
            yield within(self.link.timers, answer, _PATIENCE)
        if answer.done() and answer.exception() is None:
            return answer.result().find(contender.id) or contender
        return contender

    def _outage(self, late: DeadlineReached) -> Steps[BackendUnavailable | None]:
        """The error for a service that has fallen silent since the queue was seen, or None.

        The withdrawal, which is due anyway, is what tells.
        """
        ticket = self.ticket
        if ticket is None:
            return None
        removal = ticket.withdraw()
        if (doubt := ticket.session.suspicion) is not None:
            return BackendUnavailable(str(self.link.settings), doubt)
        yield within(self.link.timers, removal, _PATIENCE)
        return None if removal.done() else self.link.silent(late)

    def _timeout(self, silent: BackendUnavailable | None = None) -> AcquireTimeout:
        waited = self.link.clock.now() - self.started
        ahead = None if self.ahead is None else str(self.ahead)
        here = self._held_here()
        facts = (self.queue, waited, self.position, ahead, here)
        if silent is None:
            return AcquireTimeout(*facts)
        return AcquireUnavailable(*facts, service=silent.service, reason=silent.reason)

    def _own_grant(self) -> Ticket | None:
        """The caller's own grant of this lock, where it is what the caller waits for."""
        if self.caller is None or not (held := self.link.held(self.queue)):
            return None
        own = [one for one in held if one.granted and one.granted[1] is self.caller]
        enough = self.claim.of if isinstance(self.claim, Permit) else 1
        return own[0] if len(own) >= enough else None

    def _held_here(self) -> str | None:
        """Since when and where this client holds the lock, if it does."""
        own = self._own_grant()
        held = [own] if own is not None else self.link.held(self.queue)
        for ticket in held:
            if ticket.granted is not None:
                since, caller = ticket.granted
                when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
                return f"since {when}, acquired {described(caller, self.caller)}"
        return None

    def _warn(self) -> None:
        if self._own_grant() is not None:
            log.warning(
                "lock %r: waiting for a grant that the same caller holds %s; locks are not "
                "reentrant, so this waits for itself unless something else releases it",
                self.queue,
                self._held_here(),
            )


def _hands_over(predecessor: Ticket | None, nearest: Contender, me: Contender) -> bool:
    """Whether ``nearest``, the contender of ``predecessor``, leaves me next when it goes.

    It does where it was admitted and we ask for the same: see `next_in_line`. An id alone doesn't
    tell what was admitted: a lost attempt may have left another contender of the same entry behind.
    """
    admitted = None if predecessor is None else predecessor.admitted
    if admitted is None or not are_same(admitted, nearest):
        return False
    return nearest.claim == me.claim


def acquisition(
    link: Link, queue: str, claim: Claim, *, once: bool = False, caller: Caller | None = None
) -> Steps[Ticket]:
    """Acquire ``queue`` as ``claim``; the granted ticket.

    Raises `AcquireTimeout` at the driver's deadline, `AcquireUnavailable` where the service is
    silent then, and `AcquireTimeout` when busy if asked ``once``, in which case
    a silent service is a `BackendUnavailable`. Raises `QueueMismatch`, `SessionLost` or `Evicted`
    when the contender is lost while it waits, and what the backend raises. However it ends without
    a grant, the ticket is withdrawn. ``caller`` is warned when it waits for itself.
    """
    return _Acquisition(link, queue, claim, caller).steps(once)
