"""The live tickets of one client: what follows a loss, and the sweep of what was given up.

After a loss, the grants end first. The contenders are withdrawn a moment later, because the service
may keep them for longer than this client counts on them, and other clients would wait for them.

A signal handler may raise between any two lines of an acquire or a release, a service may refuse a
removal for a while, and an event loop may be closed under a waiter. Each leaves a ticket that
nobody goes on with. All tickets are noted before they are sent, so the sweep finds it, and whatever
strikes its first removal, the sweep repeats it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Final

from coordlock.errors import ClientClosed, CoordlockError, Evicted, LockLost, SessionLost
from coordlock.kernel.session import Session
from coordlock.kernel.ticket import HoldLimit, Ticket
from coordlock.model.contender import Contender, Snapshot
from coordlock.runtime.caller import Caller
from coordlock.runtime.clock import Timer, Timers, soon
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise

__all__ = ["SWEEP_PAUSE_S", "Tickets", "is_plumbing"]

log = Log("coordlock")

#: Seconds from a loss to the withdrawal of what was held. The holder may wait for a processor, and
#: should learn of the loss before the next one is granted.
_LOSS_GRACE_S: Final = 0.2
#: Seconds from one sweep to the next at most; a third of the time-to-live where that is shorter.
SWEEP_PAUSE_S: Final = 5.0
#: A wait that lasts longer is logged, once.
_LONG_WAIT_S: Final = 10.0
#: How many of the grants that a session takes along have a line in the log.
_MOST_LINES: Final = 20


class Tickets:
    """The live tickets: each from before its entries are sent until it has no contender left."""

    def __init__(self, service: object, timers: Timers, ttl: float, client: int) -> None:
        """The log shows ``service`` as the place where a loss happened; events, ``client``."""
        self.client: Final = client
        self._service: Final = service
        self._timers: Final = timers
        # Reentrant: a signal handler, or a finalizer in a collection of garbage, may release a lock
        # between any two steps of this thread.
        self.lock: Final = threading.RLock()
        self._by_id: Final[dict[str, Ticket]] = {}
        #: Those that were granted, by caller and by queue, the oldest first.
        self._granted: Final[dict[Caller | str | None, dict[Ticket, None]]] = {}
        #: Called when no ticket is left: of a client that closes, or was dropped.
        self.when_empty: Callable[[], object] | None = None
        self._pause: Final = min(SWEEP_PAUSE_S, ttl / 3)
        self._timer: Timer | None = None
        #: Why removals are refused, as the log has said.
        self._refusals: Final[set[str]] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Ticket]:
        # Over a copy: a collection of garbage meanwhile may forget some.
        with self.lock:
            return iter(dict.fromkeys(self._by_id.values()))

    def add(self, ticket: Ticket) -> None:
        """``ticket`` is about to be sent."""
        with self.lock:
            for entry in ticket.entries:
                self._by_id[entry.id] = ticket
        if self._timer is None:
            self._sweep_later()

    def grant(
        self,
        ticket: Ticket,
        snapshots: Sequence[Snapshot],
        caller: Caller | None,
        max_hold: float | None = None,
    ) -> None:
        """Grant ``ticket`` to ``caller``: see `Ticket.grant`. It is noted until it is gone."""
        ticket.caller = caller
        with self.lock:
            if ticket.entries[0].id in self._by_id:  # else the client has been closed
                self._granted.setdefault(caller, {})[ticket] = None
                for entry in ticket.entries:
                    self._granted.setdefault(entry.queue, {})[ticket] = None
        ticket.grant(snapshots)
        if max_hold is not None:
            self.limit(ticket, max_hold)

    def forget(self, ticket: Ticket) -> None:
        """``ticket`` has no contender left. Idempotent."""
        with self.lock:
            for entry in ticket.entries:
                for key in (ticket.caller, entry.queue):
                    granted = self._granted.get(key, {})
                    granted.pop(ticket, None)
                    if not granted:
                        self._granted.pop(key, None)
                # Last: where a signal handler raises before this, the next call does it all.
                self._by_id.pop(entry.id, None)
        if self.when_empty is not None and not self._by_id:
            self.when_empty()

    def own(self, contender: Contender) -> Ticket | None:
        """The ticket of ``contender``, if it is one of this client's own and not gone for good."""
        return self._by_id.get(contender.id)

    def held(self, queue: str | None, caller: Caller | None = None) -> list[Ticket]:
        """The grants of ``queue``, of ``caller``, or of both, the oldest first.

        Without those that are lost or released, which leave whatever their callers do. Looks at the
        clock.
        """
        with self.lock:
            granted = list(self._granted.get(queue or caller, ()))
        granted = [ticket for ticket in granted if caller in (None, ticket.caller)]
        return [ticket for ticket in granted if ticket.lost is None and not ticket.is_leaving]

    # What follows a loss

    def lose_session(self, session: Session, error: CoordlockError) -> None:
        """``session`` has ended with ``error``, and so have its tickets."""
        if not session.id:
            return  # it was never open: the next attempt at opening one logs why
        lost = [ticket for ticket in self if ticket.session is session]
        ended = [ticket for ticket in lost if not ticket.is_leaving]
        for ticket in lost:
            ticket.lose(copy(error))  # each waiter's traceback goes on its own
        if isinstance(error, ClientClosed):
            return
        theirs = [ticket for ticket in ended if not is_plumbing(ticket.kind)]
        held = sum(map(is_held, theirs))
        text = "%s: %s; it had %d grants and %d waits"
        log.warning(text, self._service, error, held, len(theirs) - held)

    def loss_grace(self, session: Session) -> float:
        """Seconds for which the holders in ``session`` are given notice of its end.

        0 if the service itself has ended it, and if nothing in it is held but being withdrawn.
        """
        is_held = not session.gone and any(
            ticket.session is session and ticket.granted_at is not None and not ticket.is_leaving
            for ticket in self
        )
        return _LOSS_GRACE_S if is_held else 0.0

    def limit(self, ticket: Ticket, seconds: float) -> None:
        """Let ``ticket``, which was granted, be lost ``seconds`` from now."""
        limit = ticket.limit = HoldLimit(self._timers, seconds, partial(self._expire, ticket))
        ticket.end.add_done_callback(lambda _: limit.cancel())

    def _expire(self, ticket: Ticket, seconds: float) -> None:
        if ticket.is_leaving or ticket.end.done() or not ticket.contenders:
            return
        reason = f"it was held for {seconds:g} s, the limit set by max_hold or extend()"
        token = ticket.contenders[0].token or 0
        ticket.lose(LockLost(ticket.name, token, reason, kind=ticket.kind))

    def lost(self, ticket: Ticket, error: CoordlockError) -> None:
        """``ticket`` is lost with ``error``: withdraw it soon, and log it if it was held."""
        if ticket.recording is not None:
            ticket.recording.lost(ticket, error)
        if isinstance(error, ClientClosed):
            return  # the close withdraws it
        with suppress(ClientClosed):
            when = self._timers.clock.now() + _LOSS_GRACE_S
            self._timers.call_at(when, partial(_withdraw, ticket))
        # An idle worker of a work queue has lost nothing; a `LockLost` ends what is at work.
        if ticket.granted_at is not None and (is_held(ticket) or isinstance(error, LockLost)):
            if isinstance(error, SessionLost):
                ticket.session.losses += 1
            if ticket.session.losses <= _MOST_LINES:
                _log_loss(ticket, error)

    # The sweep

    def _sweep_later(self) -> None:
        with suppress(ClientClosed):
            when = self._timers.clock.now() + self._pause
            self._timer = self._timers.call_at(when, self.sweep)

    def sweep_soon(self) -> None:
        """Sweep now: the service answers again."""
        if self._by_id:
            soon(self._timers, self.sweep)

    def sweep(self) -> None:
        """Look at all tickets, in the timers' thread, and again later while there are any."""
        if (timer := self._timer) is not None:
            timer.cancel()  # so that there is one at a time
        self._timer = None
        for ticket in self:
            try:
                ticket.sweep()
            except Exception:
                log.exception("a withdrawal failed, and is repeated")
            self._log_long_wait(ticket)
        if self._by_id and self._timer is None:
            self._sweep_later()

    def _log_long_wait(self, ticket: Ticket) -> None:
        if ticket.blocker is None or ticket.waits_since is None or ticket.is_leaving:
            return
        waited = time.time() - ticket.waits_since
        if waited >= _LONG_WAIT_S and log.isEnabledFor(logging.INFO):
            ticket.waits_since = math.inf
            queue, blocker = ticket.blocker
            answer = ticket.read_before(queue, blocker)
            answer.add_done_callback(partial(_log_wait, ticket, blocker, waited))

    def refused(self, ticket: Ticket, error: BaseException) -> None:
        """The service refuses to remove contenders of ``ticket``. The log says each reason once."""
        reason = str(error)
        if reason not in self._refusals:
            self._refusals.add(reason)
            text = "%s %r: could not withdraw, and will try again: %s"
            log.error(text, ticket.kind, ticket.name, error)

    def accepted(self) -> None:
        """The service has removed what it refused to remove before."""
        if self._refusals:
            self._refusals.clear()
            log.warning("the service removes contenders again")


def _withdraw(ticket: Ticket) -> None:
    if ticket.contenders:
        ticket.withdraw()  # else it is being sent, and its sender withdraws it


def is_plumbing(kind: str) -> bool:
    """Whether tickets of this ``kind`` are a work queue's own: those of its workers and chores."""
    return kind.endswith("work queue")


def is_held(ticket: Ticket) -> bool:
    """Whether ``ticket`` was granted to somebody who relies on it."""
    return ticket.granted_at is not None and not is_plumbing(ticket.kind)


def _log_loss(ticket: Ticket, error: CoordlockError) -> None:
    """``ticket``, which was granted, was lost with ``error``."""
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


def _log_wait(ticket: Ticket, blocker: Contender, waited: float, answer: Promise[Snapshot]) -> None:
    """``ticket`` has waited long behind ``blocker``, whose owner the ``answer`` shows."""
    if answer.exception() is not None or ticket.blocker is None:
        return  # the service is away, which has a line of its own, or the wait is over
    blocker = answer.result().find(blocker.id) or blocker
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
