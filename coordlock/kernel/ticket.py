"""The client's side of its contenders: from before they are sent until they leave or are lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from coordlock.backend.waiting import Waiting
from coordlock.errors import ClientClosed, CoordlockError, Evicted, LockLost, SessionLost
from coordlock.kernel.removal import ANSWERED, Removable
from coordlock.kernel.retry import retried
from coordlock.model.admission import is_blocked
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.names import joined
from coordlock.runtime.caller import Caller
from coordlock.runtime.clock import Timer, Timers, sleep
from coordlock.runtime.driver import Call, Steps
from coordlock.runtime.promise import Promise, copied, failed

__all__ = ["HAD_LEFT", "HoldLimit", "Ticket"]

T = TypeVar("T")

#: Why a grant counts as lost whose withdrawal found nothing to remove.
HAD_LEFT: Final = "its contender had left the queue"

#: A watch on the own contender is armed after this many seconds, so that short holds save its
#: messages. It starts at a known revision, so nothing is missed; an eviction is only seen later.
_WATCH_DELAY_S: Final = 0.2


class GrantRecorder(Protocol):
    """Records what becomes of a grant."""

    def lost(self, ticket: Ticket, lost: CoordlockError) -> None:
        """The grant has ended by ``lost``."""

    def release_requested(self, reason: str) -> None:
        """Another client has asked the holder to release it."""


@dataclass(slots=True, eq=False, repr=False)
class Ticket(Removable):
    """One entry on its way through a queue, or several that stand or fall together.

    The promise ``end`` is kept with the error by which a contender was lost (its session ended, it
    was evicted, the client was closed), or with None when they were withdrawn before that.
    """

    #: What errors and the log call it; without a name, that of its queues.
    kind: str = "lock"
    called: str | None = None
    #: In the order of the entries, once they stand in their queues; empty before.
    contenders: tuple[Contender, ...] = ()
    #: Its wait in the queues, once it has to.
    _waiting: Waiting | None = None
    #: The call that acquires it, or the block that holds it; None where it lives on its own.
    call: Call | None = None
    #: Whether it was given up: the sweep withdraws it, if nothing else has.
    is_given_up: bool = False
    #: The thread or the task to which it was granted, where that is known.
    caller: Caller | None = None
    #: When it was granted, by the wall clock. From then on no earlier contender is in its way.
    granted_at: float | None = None
    #: Seconds from the call to the grant.
    waited: float = 0.0
    #: While it waits, also for an upgrade: its nearest blocker with its queue, and since when
    #: by the wall clock: infinite once the log has a line about it.
    blocker: tuple[str, Contender] | None = None
    waits_since: float | None = None
    #: Records what becomes of its grant, while somebody listens to events.
    recording: GrantRecorder | None = None
    #: Tells whether the session was lost, too, where the service has reported that it vanished.
    probe: Promise[float] | None = None
    #: How long it may be held, where that has a limit.
    limit: HoldLimit | None = None
    #: The first error that `lose` was given, also after a withdrawal, when ``end`` is kept already.
    _loss: CoordlockError | None = None
    #: What the caller waits for, one thing at a time: it fails with the contender.
    _awaited: Promise[Any] | None = None
    _stop_watching: Callable[[], None] | None = None
    _is_watched: bool = False

    @property
    def name(self) -> str:
        """What errors and the log call it."""
        if self.called is not None:
            return self.called
        if len(self.entries) == 1:
            return self.entries[0].queue
        return joined(entry.queue for entry in self.entries)

    @property
    def waiting(self) -> Waiting:
        """Its wait in the queues."""
        if self._waiting is None:
            queues = [entry.queue for entry in self.entries]
            self._waiting = Waiting(self._backend, queues, self.contenders)
        return self._waiting

    # Its way through the queues

    def enqueue(self, *, unless_blocked: bool = False) -> Steps[tuple[Snapshot, ...]]:
        """Send the entries, again where no answer came; the queues with the contenders in them.

        With ``unless_blocked``, see `Backend.enqueue`: there are no `contenders` when the queues
        come without them, and nothing is left to withdraw.
        """
        try:
            send = partial(self._send, unless_blocked)
            snapshots = yield from retried(send, self._timers, pause=self.pause)
        except SessionLost as error:
            self.session.gone_with(error)
            raise
        is_refused = unless_blocked and self._was_refused(snapshots)
        self._request = ANSWERED
        if not is_refused:
            found = []
            for entry, snapshot in zip(self.entries, snapshots, strict=True):
                if (contender := snapshot.find(entry.id)) is None:
                    raise Evicted(entry.queue)  # before the queue was read
                found.append(contender)
            self.contenders = tuple(found)
        elif self._attempts == 1:  # else an earlier one, without an answer, may have added them
            self._attempts = 0
        return snapshots

    def _send(self, unless_blocked: bool) -> Promise[tuple[Snapshot, ...]]:
        if (ended := self.session.ended) is not None:
            return failed(copy(ended))
        with self._lock:
            self._attempts += 1  # first: a signal handler may begin the withdrawal at each line
            self._request = None  # not the one before
            if self.is_leaving:  # another thread closes the client: nothing would remove them
                return failed(self._loss or ClientClosed())
        self._request = answer = self._backend.enqueue(self.entries, unless_blocked=unless_blocked)
        return answer if answer.done() else self._or_loss(copied(answer))

    def _was_refused(self, snapshots: Sequence[Snapshot]) -> bool:
        """Whether ``snapshots`` show none of the entries, and what is in their way."""
        pairs = zip(snapshots, self.entries, strict=True)
        if any(snapshot.find(entry.id) is not None for snapshot, entry in pairs):
            return False
        return any(map(is_blocked, snapshots, self.entries))

    def departure(
        self, snapshots: Sequence[Snapshot], blockers: Mapping[Contender, int]
    ) -> Promise[None]:
        """A promise that is kept when one of ``blockers`` has left, as `Waiting.departure` says.

        It fails when a contender of this ticket is lost: those are watched first, because a
        departure comes in order only if theirs would have been reported before.
        """
        self._watch(snapshots)
        departure = self._or_loss(self.waiting.departure(blockers))
        if self.is_leaving:
            self.waiting.stop()  # another thread closes the client, and has withdrawn it
        return departure

    def waits_for(self, queue: str, blocker: Contender) -> None:
        """It has to wait for ``blocker`` in ``queue``."""
        self.waits_since = self.waits_since or time.time()
        self.blocker = queue, blocker

    def grant(self, snapshots: Sequence[Snapshot]) -> None:
        """Count as granted: ``snapshots`` of its queues prove that no contender is in its way.

        Raises what `check` does.
        """
        with self._lock:
            self.granted_at = time.time()
            self.blocker = self.waits_since = None
            self._awaited = None  # it has been answered, and need not be kept
        self.check()
        if self._stop_watching is None and self._backend.capabilities.ordered:
            when = self._timers.clock.now() + _WATCH_DELAY_S
            with suppress(ClientClosed):
                timer = self._timers.call_at(when, partial(self._watch, snapshots))
                self._stop_watching = timer.cancel

    # Its loss

    @property
    def lost(self) -> CoordlockError | None:
        """Why it was lost; None while it lives, and after a withdrawal that has removed it.

        Looks at the clock.
        """
        if self.limit is not None:
            self.limit.look()
        if not self.end.done():
            return self.session.ended
        lost = self.end.result()
        if lost is None and self.found_nothing:
            token = (self.contenders[0].token or 0) if self.contenders else 0
            lost = LockLost(self.name, token, HAD_LEFT, kind=self.kind)
        return lost

    def check(self) -> None:
        """Raise why the contender is lost, if it is. Looks at the clock."""
        if (lost := self.lost) is not None:
            raise copy(lost)

    def unless_lost(self, answer: Promise[T]) -> Promise[T]:
        """``answer``, but failing when the contender is lost, whether it is answered or not."""
        return answer if answer.done() else self._or_loss(copied(answer))

    def pause(self, seconds: float) -> Promise[None]:
        """A promise that is kept after ``seconds``, but fails when the contender is lost."""
        return self.unless_lost(sleep(self._timers, seconds))

    def _or_loss(self, promise: Promise[T]) -> Promise[T]:
        """``promise``, for which the caller waits now: it fails when the contender is lost."""
        with self._lock:
            self._awaited = promise
        if self._loss is not None:
            promise.fail(self._loss)
        return promise

    def lose(self, error: CoordlockError) -> None:
        """The contender is gone, or counts as gone: end its wait or its grant with ``error``."""
        if self.end.resolve(error):
            self._tickets.lost(self, error)
        with self._lock:
            self._loss = self._loss or error
            awaited = self._awaited
        if awaited is not None:
            awaited.fail(error)

    def read_before(self, queue: str, blocker: Contender) -> Promise[Snapshot]:
        """The ``queue`` up to ``blocker``, with its owner."""
        return self._backend.snapshot(queue, blocker, owners=True)

    def give_up(self, error: CoordlockError) -> bool:
        """Let the wait in the queue fail with ``error``, unless it is over; whether it does."""
        with self._lock:
            if not self.contenders or self.granted_at is not None or self.is_leaving:
                return False
            self.lose(error)
            return True

    def removed_by_service(self, queue: str, _: object = None) -> None:
        """The contender has left ``queue``, by no withdrawal: the callback of a watch."""
        if not self.is_leaving:
            # Sessions that end take their contenders along. In a process that stood still, this
            # news may come before its timers do, so the session looks at the clock.
            ended = self.session.ended
            if ended is None:
                # A lease that was revoked looks like an eviction; a heartbeat shows which it was.
                self.probe = self.session.probe()
                self.lose(Evicted(self.called or queue, kind=self.kind))
            else:
                self.lose(copy(ended))
                self.session.recovered()  # the service is there

    def _watch(self, snapshots: Iterable[Snapshot]) -> None:
        """Watch the ticket's own contenders for departures after the ``snapshots``. Idempotent."""
        with self._lock:
            if self.end.done() or self._is_watched:
                return
            self._is_watched = True
        if self._stop_watching is not None:
            self._stop_watching()
        cancels = [
            self._backend.watch(
                contender, snapshot.revision, partial(self.removed_by_service, snapshot.queue)
            )
            for contender, snapshot in zip(self.contenders, snapshots, strict=True)
        ]
        cancel = cancels[0] if len(cancels) == 1 else partial(_call_all, cancels)
        self._stop_watching = cancel
        if self.is_leaving:
            cancel()

    # Its withdrawal

    def sweep(self) -> None:
        """Withdraw it if it was given up, or go on with that. Never blocks."""
        if self.is_leaving:
            self._go_on()
        elif self.is_given_up or (self.call is not None and self.call.is_given_up):
            self.withdraw()

    def stop_watching(self) -> None:
        """Watch no contender any longer, neither its own nor those that it waits for."""
        with self._lock:
            stop, self._stop_watching = self._stop_watching, None
        if stop is not None:
            stop()
        if self._waiting is not None:
            self._waiting.stop()


class HoldLimit:
    """How long a grant may be held: it calls ``expire`` when that is over, perhaps repeatedly.

    ``expire`` is given the seconds that were allowed.
    """

    def __init__(self, timers: Timers, seconds: float, expire: Callable[[float], object]) -> None:
        #: What the first limit was, which an extension without a time of its own allows again.
        self.seconds: Final = seconds
        self._timers = timers
        self._expire = expire
        self._allowed = seconds
        self._end = 0.0
        self._timer: Timer | None = None
        self.extend(seconds)

    @property
    def remaining(self) -> float:
        """Seconds until the end, 0 from then on."""
        return max(0.0, self._end - self._timers.clock.now())

    def extend(self, seconds: float) -> None:
        """Allow ``seconds`` from now."""
        self.cancel()
        self._allowed = seconds
        self._end = self._timers.clock.now() + seconds
        self._timer = self._timers.call_at(self._end, self.look)

    def look(self) -> None:
        """Look at the clock: the time may be over before the timer's thread has run."""
        if self._timers.clock.now() >= self._end:
            self._expire(self._allowed)

    def cancel(self) -> None:
        """Do not call ``expire`` by the timer any more."""
        if self._timer is not None:
            self._timer.cancel()


def _call_all(actions: Iterable[Callable[[], None]]) -> None:
    for action in actions:
        action()
