"""What a call of acquire says of its wait: in the log while it waits for itself, and at its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from coordlock.errors import AcquireTimeout, AcquireUnavailable, BackendUnavailable
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import AnyClaim, Permit
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.names import joined
from coordlock.runtime.caller import Caller, described
from coordlock.runtime.clock import within
from coordlock.runtime.deadline import Deadline, DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise

if TYPE_CHECKING:
    from coordlock.kernel import events
else:
    events = Lazily("coordlock.kernel.events")

__all__ = ["PATIENCE", "Report", "identified"]

log = Log("coordlock")

#: How long, in seconds, to wait for an answer that is nice to have. So long before the deadline
#: the service is asked who is ahead: it ends the wait at the deadline, with the name or without.
PATIENCE: Final = 0.5
#: After how long, in seconds, a caller that waits for itself is told.
_ALONE: Final = 1.0


class Report:
    """What one waiting call of acquire knows, for the error that may end it.

    Of several queues, it is about the first in which the call has to wait.

    ``deadline`` is the call's, None where the service need not be asked who is ahead.
    """

    __slots__ = (
        *("_ahead", "_answer", "_caller", "_claims", "_deadline", "_engine", "_position"),
        *("_started", "_warns", "name"),
    )

    def __init__(
        self,
        engine: Engine,
        claims: Mapping[str, AnyClaim],
        caller: Caller | None,
        deadline: Deadline | None,
    ) -> None:
        self._engine = engine
        #: The lock that is waited for, once that is known; all of them before.
        self.name = next(iter(claims)) if len(claims) == 1 else joined(claims)
        self._claims = claims
        self._caller = caller
        self._deadline = deadline
        self._started = engine.clock.now()
        self._position: int | None = None
        self._ahead: Contender | None = None
        self._answer: Promise[Snapshot] | None = None
        self._warns = False

    def waits(
        self,
        ticket: Ticket,
        places: Iterable[Contender],
        queues: Iterable[Snapshot],
        waiting_for: Iterable[tuple[Contender, ...]],
    ) -> None:
        """``ticket``, with ``places`` in ``queues``, waits for ``waiting_for`` or is refused."""
        listeners, is_first, had_waited = self._engine.events, True, self._position is not None
        all_places = zip(ticket.entries, places, queues, waiting_for, strict=True)
        for entry, me, snapshot, ahead in all_places:
            if not ahead:
                continue
            position = snapshot.omitted + len(snapshot.before(me))
            if is_first:
                self.name, self._position, self._ahead = entry.queue, position, ahead[-1]
                is_first = False
            if had_waited or not listeners.heard:
                return
            now = self._engine.clock.now()
            listeners.tell(events.Queued(now, entry.id, entry.queue, entry.claim, position))

    def granted(self, ticket: Ticket) -> None:
        """The lock was granted to ``ticket``."""
        if not (listeners := self._engine.events).heard:
            return
        now, waited = self._engine.clock.now(), self._waited
        for entry, me in zip(ticket.entries, ticket.contenders, strict=True):
            token = me.token or 0
            event = events.Granted(now, entry.id, entry.queue, entry.claim, token, waited)
            listeners.tell(event)

    def on_time(self, departure: Promise[None], ticket: Ticket) -> Steps[None]:
        """Let ``ticket`` wait for ``departure``; ask who is ahead when the deadline is near."""
        if not self._warns and self._own_grant() is not None:
            self._warns = True
            when = self._engine.clock.now() + _ALONE
            self._engine.timers.call_at(when, partial(self._warn, ticket))
        if self._deadline is not None and not departure.done():
            left = self._deadline.remaining() - PATIENCE
            yield within(self._engine.timers, departure, left)
            if not departure.done() and self._answer is None:
                self._answer = self._engine.backend.snapshot(self.name, self._ahead, owners=True)
        yield departure

    def busy(self, once: bool) -> AcquireTimeout:
        """The error of a call that asked ``once``, or waited in vain, at a lock that is held."""
        held_here = None if once else self._held_here()
        return AcquireTimeout(self.name, self._waited, self._position, self._described(), held_here)

    def unavailable(self, silent: BackendUnavailable) -> AcquireUnavailable:
        """The error of a call that ends without an answer, because of ``silent``."""
        facts = self.name, self._waited, self._position, self._described(), self._held_here()
        return AcquireUnavailable(silent.service, silent.reason, *facts)

    def silence(
        self, late: DeadlineReached, ticket: Ticket | None, once: bool
    ) -> BackendUnavailable | None:
        """At the deadline, the error for a service that is silent; None for one that answers."""
        if self._position is None:
            return self._engine.silent(late)
        if once:
            return None
        if ticket is not None and (doubt := ticket.session.suspicion) is not None:
            return BackendUnavailable(str(self._engine.settings), doubt)
        # In a shorter call its question may just be on the way.
        is_due = self._waited >= PATIENCE
        asked = self._answer is not None and not self._answer.done()
        return self._engine.silent(late) if asked and is_due else None

    @property
    def _waited(self) -> float:
        return self._engine.clock.now() - self._started

    def _described(self) -> str | None:
        """The contender that is waited for, with its owner if that is known."""
        ahead, answer = self._ahead, self._answer
        if ahead is None:
            return None
        if answer is not None and answer.done() and answer.exception() is None:
            ahead = answer.result().find(ahead.id) or ahead
        return str(ahead)

    def _own_grant(self) -> Ticket | None:
        """The caller's own grant of this lock, where it is what the caller waits for."""
        if self._caller is None:
            return None
        held = self._engine.held_by(self._caller)
        own = [one for one in held if any(entry.queue == self.name for entry in one.entries)]
        claim = self._claims.get(self.name)
        enough = claim.of if isinstance(claim, Permit) else 1
        return own[0] if len(own) >= enough else None

    def _held_here(self) -> str | None:
        """Since when and where this client holds the lock, if it does."""
        own = self._own_grant()
        held = [own] if own is not None else self._engine.held(self.name)
        for ticket in held:
            if ticket.granted is not None:
                since, caller = ticket.granted
                when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
                return f"since {when}, acquired {described(caller, self._caller)}"
        return None

    def _warn(self, ticket: Ticket) -> None:
        waits = ticket.granted is None and not ticket.end.done()
        if waits and self._own_grant() is not None:
            log.warning(
                "lock %r: waiting for a grant that the same caller holds %s; locks are not "
                "reentrant, so this waits for itself unless something else releases it",
                self.name,
                self._held_here(),
            )


def identified(engine: Engine, queue: str, contender: Contender) -> Steps[Contender]:
    """``contender`` with its owner, looked up where the queue was read without them."""
    if contender.owner is not None:
        return contender
    answer = engine.backend.snapshot(queue, contender, owners=True)
    with suppress(DeadlineReached):
        yield within(engine.timers, answer, PATIENCE)
    if answer.done() and answer.exception() is None:
        return answer.result().find(contender.id) or contender
    return contender
