"""The client's side of its contenders: from before they are sent until they are certainly gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from coordlock.backend import Backend
from coordlock.errors import (
    BackendUnavailable,
    ClientClosed,
    CoordlockError,
    Evicted,
    SessionLost,
)
from coordlock.kernel.departures import Departures
from coordlock.kernel.recovery import Recovery
from coordlock.kernel.removal import Removal
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session
from coordlock.model.admission import is_blocked
from coordlock.model.contender import Contender, Entry, Snapshot, are_same
from coordlock.model.names import joined
from coordlock.runtime.caller import Caller
from coordlock.runtime.clock import Timer, Timers, ensure, soon
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, copied, failed, resolved, settled

if TYPE_CHECKING:
    from coordlock.kernel.hold_limit import HoldLimit  # few grants have one

__all__ = ["Stage", "Ticket"]

T = TypeVar("T")

_ANSWERED: Final[Promise[Any]] = resolved(None)

#: A watch on the own contender is armed after this many seconds, so that short holds save its
#: messages. It starts at a known revision, so nothing is missed; an eviction is only seen later.
_WATCH_DELAY: Final = 0.2


class Stage(IntEnum):
    """How far a contender has come. It only goes up."""

    SENDING = 1  #: its request is being sent, or has no answer yet
    QUEUED = 2  #: it stands in the queue
    GRANTED = 3  #: it stands there, and no earlier contender is in its way
    LEAVING = 4  #: its removal has been asked for
    GONE = 5  #: its removal has been answered


class Ticket:
    """One entry on its way through a queue, or several that stand or fall together.

    ``end`` is kept with the error by which a contender was lost (its session ended, it was
    removed, the client was closed), or with None when they were withdrawn before that.
    """

    __slots__ = (
        "_attempts",
        "_awaited",
        "_backend",
        "_in_flight",
        "_lock",
        "_news",
        "_on_gone",
        "_recovery",
        "_stop_watching",
        "_timers",
        "caller",
        "contenders",
        "departures",
        "end",
        "entries",
        "granted",
        "limit",
        "removal",
        "removed_alone",
        "session",
        "stage",
    )

    def __init__(
        self,
        backend: Backend,
        timers: Timers,
        session: Session,
        entries: tuple[Entry, ...],
        recovery: Recovery,
        on_gone: Callable[[Ticket], None],
    ) -> None:
        self.session: Final = session
        #: One or more, each of another queue.
        self.entries: Final = entries
        self.end: Final[Promise[CoordlockError | None]] = Promise()
        #: Whether the withdrawal has removed every contender, once that is known.
        self.removal: Final[Promise[bool]] = Promise()
        self.stage = Stage.SENDING
        #: In the order of the entries, once they stand in their queues; empty before.
        self.contenders: tuple[Contender, ...] = ()
        #: The earlier contenders that it waits for, once it does.
        self.departures: Departures | None = None
        #: The thread or the task to which it was granted, where that is known.
        self.caller: Caller | None = None
        #: When (by the wall clock) it was granted, and to which thread or task. From then on it is
        #: true for ever that no earlier contender is in its way.
        self.granted: tuple[float, Caller | None] | None = None
        #: How long it may be held, where that has a limit.
        self.limit: HoldLimit | None = None
        #: Whether it is certain that the withdrawal is what removed every contender.
        self.removed_alone = False
        self._backend = backend
        self._timers = timers
        self._recovery = recovery
        self._on_gone = on_gone
        self._lock = threading.RLock()
        self._attempts = 0
        self._in_flight: Promise[Any] | None = None
        #: The first error that was told, also of a contender that was withdrawn before.
        self._news: CoordlockError | None = None
        #: What the caller waits for, one thing at a time: it fails with the contender.
        self._awaited: Promise[Any] | None = None
        self._stop_watching: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        """The queues, for people."""
        if len(self.entries) == 1:
            return self.entries[0].queue
        return joined(entry.queue for entry in self.entries)

    def own(self, contender: Contender) -> Contender | None:
        """What is kept of ``contender``, where it is one of this ticket's own."""
        return next((one for one in self.contenders if are_same(one, contender)), None)

    @property
    def lost(self) -> CoordlockError | None:
        """Why the contender was lost, or None: it lives or was withdrawn. Looks at the clock."""
        if self.limit is not None:
            self.limit.look()
        return self.end.result() if self.end.done() else self.session.ended

    @property
    def is_leaving(self) -> bool:
        """Whether `withdraw` was called."""
        return self.stage >= Stage.LEAVING

    @property
    def was_missing(self) -> bool:
        """Whether the withdrawal found nothing to remove: it was lost, and nothing had told so."""
        removal = self.removal
        return removal.done() and removal.exception() is None and not removal.result()

    def enqueue(self, *, unless_blocked: bool = False) -> Steps[tuple[Snapshot, ...]]:
        """Send the entries, again where no answer came; the queues with the contenders in them.

        With ``unless_blocked``, see `Backend.enqueue`: there are no `contenders` when the queues
        come without them, and nothing is left to withdraw.
        """
        try:
            snapshots = yield from retried(
                lambda: self.unless_lost(self._send(unless_blocked)), self._timers
            )
        except SessionLost as error:
            self.session.gone_with(error)
            raise
        self._in_flight = _ANSWERED  # what it answered is known, and need not be kept
        if unless_blocked and self._was_refused(snapshots):
            if self._attempts == 1:  # else an attempt without answer may have added them
                self._attempts = 0
            return snapshots
        contenders = []
        for entry, snapshot in zip(self.entries, snapshots, strict=True):
            if (contender := snapshot.find(entry.id)) is None:
                raise Evicted(entry.queue)  # before the queue was read
            contenders.append(contender)
        self.contenders = tuple(contenders)
        self._reach(Stage.QUEUED)
        return snapshots

    def grant(self, snapshots: Sequence[Snapshot], caller: Caller | None) -> None:
        """No earlier contender is in its way, by what ``snapshots`` of its queues prove.

        Raises what `check` does.
        """
        self._reach(Stage.GRANTED)
        self.granted = time.time(), caller
        self._awaited = None  # it has been answered, and need not be kept
        self.check()
        if self._stop_watching is None:
            when = self._timers.clock.now() + _WATCH_DELAY
            try:
                timer: Timer = self._timers.call_at(when, partial(self._watch, snapshots))
            except RuntimeError:  # no thread can be started: then the session alone tells of a loss
                return
            self._stop_watching = timer.cancel

    def check(self) -> None:
        """Raise why the contender is lost, if it is. Looks at the clock."""
        if (lost := self.lost) is not None:
            raise copy(lost)

    def unless_lost(self, future: Promise[T]) -> Promise[T]:
        """``future``, but failing when the contender is lost, whether it is answered or not."""
        return future if future.done() else self._await(copied(future))

    def departure(
        self, snapshots: Sequence[Snapshot], blockers: Iterable[Iterable[Contender]]
    ) -> Promise[None]:
        """A promise that is kept when any of ``blockers`` has left after its snapshot.

        There are ``blockers`` for each of the ticket's queues. It fails when a contender of this
        ticket is lost; they are watched from here on.
        """
        if self._stop_watching is None:
            self._watch(snapshots)
        if self.departures is None:
            self.departures = Departures(self._backend, self.contenders)
        wanted = {
            one: snapshot.revision
            for snapshot, ahead in zip(snapshots, blockers, strict=True)
            for one in ahead
        }
        waiting = self._await(self.departures.any_of(wanted))
        if self.is_leaving:
            self.departures.stop()  # by another thread, which closes the client
        return waiting

    def lose(self, error: CoordlockError) -> None:
        """The contender is gone, or counts as gone: its waiter or holder is told."""
        self.end.resolve(error)
        with self._lock:
            self._news = self._news or error
            awaited = self._awaited
        if awaited is not None:
            awaited.fail(error)

    def give_up(self, error: CoordlockError) -> bool:
        """Let the wait fail with ``error``, unless it is over; whether it does."""
        with self._lock:
            if self.stage is not Stage.QUEUED:
                return False
            self.lose(error)
            return True

    def vanished(self, queue: str, in_order: bool = False) -> None:
        """The service says that the contender is not in ``queue``, in whichever order."""
        if not self.is_leaving:
            # Sessions that end take their contenders along. In a process that stood still, this
            # news may come before its timers do, so the session looks at the clock.
            ended = self.session.ended
            self.lose(Evicted(queue) if ended is None else copy(ended))
            # The service is there. A lease that was revoked looks like an eviction: the heartbeat
            # that this sends tells.
            self.session.recovered()

    def withdraw(self) -> Promise[bool]:
        """Remove the contenders, now or as soon as they are known; whether all were there.

        Safe at any moment, from any thread, and more than once: also while they are on their way
        or after its reply was lost. It never blocks and is repeated until the service has answered
        or the session is gone there; after an outage at once.
        """
        if not self.is_leaving:
            ensure(self._timers, self._leave, self._leave_again)
        return self.removal

    def _leave(self) -> None:
        with self._lock:
            if self.is_leaving:
                return
            self.stage = Stage.LEAVING
        self._remove(again=False)

    def _leave_again(self) -> None:
        """Go on where Ctrl-C has ended an attempt to leave, which may have removed it."""
        self._reach(Stage.LEAVING)
        self._remove(again=True)

    def _remove(self, *, again: bool) -> None:
        self.end.resolve(self.session.ended)  # a loss that nothing has told yet is one, too
        outcome = run_in_background(self._removing(again))
        if outcome.done() and (error := outcome.exception()) is not None:
            raise error  # not a refusal, which waits: a signal handler's

    def _reach(self, stage: Stage) -> None:
        with self._lock:
            self.stage = max(self.stage, stage)

    def _await(self, promise: Promise[T]) -> Promise[T]:
        with self._lock:
            self._awaited = promise
        if self._news is not None:
            promise.fail(self._news)
        return promise

    def _send(self, unless_blocked: bool) -> Promise[tuple[Snapshot, ...]]:
        if (ended := self.session.ended) is not None:
            return failed(copy(ended))
        with self._lock:
            if self.is_leaving:
                # By another thread, which closes the client: nothing would remove it any more.
                return failed(self._news or ClientClosed())
            self._attempts += 1
        self._in_flight = self._backend.enqueue(self.entries, unless_blocked=unless_blocked)
        return self._in_flight

    def _was_refused(self, snapshots: Sequence[Snapshot]) -> bool:
        """Whether ``snapshots`` show none of the entries, and what is in their way."""
        pairs = zip(snapshots, self.entries, strict=True)
        if any(snapshot.find(entry.id) is not None for snapshot, entry in pairs):
            return False
        return any(map(is_blocked, snapshots, self.entries))

    def _watch(self, snapshots: Iterable[Snapshot]) -> None:
        """Watch the own contenders, from their ``snapshots`` on."""
        if self.end.done():
            return
        cancels = [
            self._backend.watch(contender, one.revision, partial(self.vanished, one.queue))
            for contender, one in zip(self.contenders, snapshots, strict=True)
        ]
        cancel = cancels[0] if len(cancels) == 1 else partial(_call_all, cancels)
        with self._lock:
            self._stop_watching = cancel
            is_leaving = self.is_leaving
        if is_leaving:
            cancel()

    def _removing(self, again: bool) -> Steps[None]:
        try:
            if not self._attempts:
                self.removal.resolve(False)
                return
            # Ctrl-C may have come while it was sent.
            if self._in_flight is not None and not self._in_flight.done():
                yield settled(self._in_flight)
            removal = self._make_removal()
            removed = yield from removal.steps()
            self.removed_alone = removed.was_there and removed.is_certain and not again
            in_doubt = self._attempts > 1 or self._may_arrive_late()
            if not in_doubt:
                self._on_gone(self)  # a client that is being closed is told by the promise
            self._reach(Stage.GONE)
            self.removal.resolve(removed.was_there or again)
            self._unwatch()  # not before: the contender behind waits for the removal alone
            if in_doubt:
                yield from removal.repeated()
        except ClientClosed as error:
            self.removal.fail(error)  # it goes with its session, and nothing has told of a loss
        except GeneratorExit:
            raise  # it was dropped where it waited
        except BaseException as error:
            if not again and not isinstance(error, CoordlockError):
                # Ctrl-C, or the error of another signal handler, in the thread that goes on here.
                soon(self._timers, self._leave_again)
                raise
            self._recovery.refused(self.name, error)
            self.removal.fail(error)
            yield self._over()  # it stands, and must not pass for another client's
        finally:
            if self.removal.done():  # else it is begun again
                self._on_gone(self)
            self._unwatch()

    def _make_removal(self) -> Removal:
        backend, timers, recovery = self._backend, self._timers, self._recovery
        return Removal(self.entries, self.session, backend, timers, recovery)

    def _may_arrive_late(self) -> bool:
        """Whether the request has no answer, so that it may take effect after the removal."""
        sent = self._in_flight
        # In the first two cases another thread is sending it.
        return sent is None or not sent.done() or isinstance(sent.exception(), BackendUnavailable)

    def _over(self) -> Promise[None]:
        """A promise that is kept when the contender is told to be gone, though it was withdrawn."""
        return settled(self._await(Promise[None]()))

    def _unwatch(self) -> None:
        with self._lock:
            stop, self._stop_watching = self._stop_watching, None
        if stop is not None:
            stop()
        if self.departures is not None:
            self.departures.stop()


def _call_all(actions: Iterable[Callable[[], None]]) -> None:
    for action in actions:
        action()
