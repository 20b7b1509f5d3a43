"""What a call of acquire knows of its wait: for its error and the log."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from coordlock.errors import AcquireTimeout, BackendUnavailable, WaitCancelled, WaitUnavailable
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.kernel.tickets import is_plumbing
from coordlock.model.claim import AnyClaim, Permit
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.names import joined
from coordlock.runtime.caller import Caller, described
from coordlock.runtime.clock import within
from coordlock.runtime.deadline import Cancelled, Deadline, DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise

if TYPE_CHECKING:
    from coordlock.kernel.recording import Recording

__all__ = ["ANSWER_TIMEOUT_S", "Report", "identified"]

log = Log("coordlock")

#: How many seconds to wait for an answer that only makes an error better. So long before its
#: deadline, a call asks the service who is ahead; at the deadline it ends with or without that.
ANSWER_TIMEOUT_S: Final = 0.5
#: An acquire that has waited so long without an answer shows that the service is away.
_SILENCE_S: Final = 1.0
#: After how many seconds the log warns a caller that waits for itself.
_SELF_WAIT_S: Final = 1.0


@dataclass(slots=True, eq=False)
class Report:
    """What one waiting call of acquire knows, for the error that may end it.

    Of several queues, it is about the first in which the call has to wait.

    ``once`` says that it does not wait, and ``deadline`` is what ends it.
    """

    _engine: Engine
    _claims: Mapping[str, AnyClaim]
    #: What to call it, where that is not the name of its queues.
    called: str | None
    _caller: Caller | None
    _once: bool
    _deadline: Deadline | None
    _started: float
    #: Once it waits: its contender, the queue at the latest reading, and the nearest blocker.
    _wait: tuple[Contender, Snapshot, Contender] | None = None
    _answer: Promise[Snapshot] | None = None
    _warns: bool = False
    recording: Recording | None = None

    @property
    def name(self) -> str:
        """What errors and the log call it."""
        return self.called or self._queue

    @property
    def _queue(self) -> str:
        """The queue that is waited for; all of them, until that is known."""
        return joined(self._claims) if self._wait is None else self._wait[1].queue

    def record(self, kind: str) -> None:
        """Record the call, of a lock of this ``kind``, and what comes of it."""
        from coordlock.kernel.recording import Recording  # only listeners need it

        if not is_plumbing(kind):
            self.recording = Recording(self._engine, kind, self.called, self._claims)

    def departed(self) -> None:
        """A contender has left that the call waited for."""
        if self.recording is not None:
            self.recording.departed()

    def note_wait(
        self,
        ticket: Ticket,
        mine: Iterable[Contender],
        queues: Iterable[Snapshot],
        blocked_by: Iterable[tuple[Contender, ...]],
    ) -> None:
        """``ticket``, whose contenders are ``mine``, must wait for ``blocked_by``."""
        every = zip(mine, queues, blocked_by, strict=True)
        me, queue, ahead = next(facts for facts in every if facts[2])
        self._wait = me, queue, ahead[-1]
        if self.recording is not None:
            self.recording.waits(_position(queue, me), once=self._once)
        if not self._once:
            ticket.waits_for(queue.queue, ahead[-1])

    def ask_before_deadline(self, departure: Promise[None], ticket: Ticket) -> Steps[None]:
        """Wait for ``departure`` until the deadline is near; then ask who is ahead of ``ticket``.

        Without a deadline there is nothing to ask: the wait is the caller's.
        """
        if not self._warns and self._own_grant() is not None:
            self._warns = True
            when = self._engine.clock.now() + _SELF_WAIT_S
            self._engine.timers.call_at(when, partial(self._warn, ticket))
        left = math.inf if self._deadline is None else self._deadline.remaining()
        if left < math.inf and not departure.done():
            left -= ANSWER_TIMEOUT_S
            yield within(self._engine.timers, departure, left)
            if not departure.done() and self._answer is None and self._wait is not None:
                _, queue, blocker = self._wait
                self._answer = self._engine.backend.snapshot(queue.queue, blocker, owners=True)

    def timeout_error(self) -> AcquireTimeout:
        """The error of a call that asked once, or waited in vain, at a lock that is held."""
        held_here = None if self._once else self._held_here()
        return AcquireTimeout(self.name, self.waited, self._seen(), self._described(), held_here)

    def error_for(self, error: BaseException, ticket: Ticket | None) -> BaseException:
        """The error of a call that ends because of ``error``, with its cause; most stay."""
        ended = self._ended(error, ticket)
        if self.recording is not None:
            self.recording.failed(ended, once=self._once)
        return ended

    def _ended(self, error: BaseException, ticket: Ticket | None) -> BaseException:
        if isinstance(error, Cancelled):
            cancelled = WaitCancelled(self.name, str(error))
            cancelled.__cause__ = error.__cause__
            return cancelled
        silent: BaseException = error
        if isinstance(error, DeadlineReached):
            if (silence := self._unavailable(error, ticket)) is None:
                return self.timeout_error()
            silent = silence
        if isinstance(silent, BackendUnavailable):
            waited, patience = self.waited, self._engine.settings.request_timeout
            if silent.away is None and waited >= min(_SILENCE_S, patience):
                self._engine.doubted(silent)
            facts = self.name, waited, self._seen(), self._described(), self._held_here()
            unavailable = WaitUnavailable(silent.service, silent.reason, *facts, away=silent.away)
            unavailable.__cause__ = silent
            return unavailable
        return error

    def _unavailable(
        self, late: DeadlineReached, ticket: Ticket | None
    ) -> BackendUnavailable | None:
        """At the deadline, the error for a service that is silent; None for one that answers."""
        if self._wait is None:
            return self._engine.silent(late)
        if self._once:
            return None
        if ticket is not None and ticket.session.suspicion is not None:
            return self._engine.silent(late)
        # In a shorter call the answer may just be on its way.
        is_due = self.waited >= ANSWER_TIMEOUT_S
        asked = self._answer is not None and not self._answer.done()
        return self._engine.silent(late) if asked and is_due else None

    @property
    def waited(self) -> float:
        """Seconds since the call."""
        return self._engine.clock.now() - self._started

    def _seen(self) -> int | None:
        """How many stood ahead at the last look: the latest reading, or the answer before the end.

        That answer shows the queue up to the nearest blocker alone.
        """
        if self._wait is None:
            return None
        me, queue, blocker = self._wait
        position = _position(queue, me)
        if (answer := _answered(self._answer)) is None:
            return position
        behind = position - _position(queue, blocker) - 1
        # If the answer lists nobody, the blocker has just left, and its departure is on its way.
        return max(1, min(position, answer.omitted + len(answer.contenders) + behind))

    def _described(self) -> str | None:
        """The contender that is waited for, with its owner if that is known."""
        return None if self._wait is None else str(_known(self._wait[2], self._answer))

    def _own_grant(self) -> Ticket | None:
        """The caller's own grant of this lock, where it is what the caller waits for."""
        if self._caller is None:
            return None
        own = self._engine.held_by(self._caller, self._queue)
        claim = self._claims.get(self._queue)
        enough = claim.of if isinstance(claim, Permit) else 1
        return own[0] if len(own) >= enough else None

    def _held_here(self) -> str | None:
        """Since when and where this client holds the lock, if it does."""
        own = self._own_grant()
        held = [own] if own is not None else self._engine.tickets.held(self._queue)
        for ticket in held:
            if ticket.granted_at is not None:
                when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ticket.granted_at))
                return f"since {when}, acquired {described(ticket.caller, self._caller)}"
        return None

    def _warn(self, ticket: Ticket) -> None:
        waits = ticket.granted_at is None and not ticket.end.done()
        if waits and self._own_grant() is not None:
            log.warning(
                "lock %r: this caller waits for a lock that it holds itself %s. Locks are not "
                "reentrant: the wait lasts until something else releases the lock",
                self.name,
                self._held_here(),
            )


def _position(snapshot: Snapshot, me: Contender) -> int:
    """How many contenders stand before ``me``."""
    return snapshot.omitted + len(snapshot.before(me))


def identified(engine: Engine, queue: str, contender: Contender) -> Steps[Contender]:
    """``contender`` with its owner, looked up where the queue was read without them."""
    if contender.owner is not None:
        return contender
    answer = engine.backend.snapshot(queue, contender, owners=True)
    with suppress(DeadlineReached):
        yield within(engine.timers, answer, ANSWER_TIMEOUT_S)
    return _known(contender, answer)


def _known(contender: Contender, answer: Promise[Snapshot] | None) -> Contender:
    """``contender`` as the ``answer`` shows it, if it has come and does."""
    found = _answered(answer)
    return contender if found is None else found.find(contender.id) or contender


def _answered(answer: Promise[Snapshot] | None) -> Snapshot | None:
    """What the service has answered, if it has."""
    if answer is None or not answer.done() or answer.exception() is not None:
        return None
    return answer.result()
