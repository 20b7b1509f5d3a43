"""The client's side of one contender: from before it is sent until it is certainly gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, Final, TypeVar

from coordlock.backend import Backend
from coordlock.errors import (
    BackendUnavailable,
    ClientClosed,
    CoordlockError,
    Evicted,
    SessionLost,
)
from coordlock.kernel.recovery import Recovery
from coordlock.kernel.removal import Removal
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session
from coordlock.log import Log
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.caller import Caller
from coordlock.runtime.clock import Timer, Timers
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, copied, failed, resolved, settled

__all__ = ["Ticket"]

log = Log("coordlock")

T = TypeVar("T")

_ANSWERED: Final[Promise[Any]] = resolved(None)

_NOBODY: Final[frozenset[Contender]] = frozenset()  # Python makes a new one each time

#: A watch on the own contender is armed after this many seconds, so that short holds save its
#: messages. It starts at a known revision, so nothing is missed; an eviction is only seen later.
_GUARD_DELAY: Final = 0.2


class Ticket:
    """One entry on its way through a queue: sent, waiting, granted, withdrawn.

    It has one ``end``, kept with the error by which the contender was lost (its session ended, it
    was removed, the client was closed), or with None when it was withdrawn before that.
    """

    __slots__ = (
        "_asked",
        "_attempts",
        "_backend",
        "_guard",
        "_in_flight",
        "_lock",
        "_news",
        "_on_withdrawn",
        "_recovery",
        "_timers",
        "_waiting",
        "_watches",
        "_withdrawal",
        "admitted",
        "contender",
        "departed",
        "doubted",
        "end",
        "entry",
        "granted",
        "session",
        "withdrew",
    )

    def __init__(
        self,
        backend: Backend,
        timers: Timers,
        session: Session,
        entry: Entry,
        recovery: Recovery,
        on_withdrawn: Callable[[Ticket], None],
    ) -> None:
        self.session: Final = session
        self.entry: Final = entry
        self.end: Final[Promise[CoordlockError | None]] = Promise()
        self.contender: Contender | None = None
        #: The same once nobody is left in its way, which then is true for ever.
        self.admitted: Contender | None = None
        #: When (by the wall clock) and to which thread or task it was granted.
        self.granted: tuple[float, Caller | None] | None = None
        #: The earlier contenders that were waited for and have departed.
        self.departed = _NOBODY
        #: Whether one of those may have been told before an earlier departure of its own.
        self.doubted = False
        #: Whether it is certain that the withdrawal is what removed the contender.
        self.withdrew = False
        self._backend = backend
        self._timers = timers
        self._recovery = recovery
        self._on_withdrawn = on_withdrawn
        self._lock = threading.RLock()
        self._attempts = 0
        self._in_flight: Future[Snapshot] | None = None
        #: The first error that was told, also of a contender that was withdrawn before.
        self._news: CoordlockError | None = None
        self._asked: Promise[Any] | None = None
        self._waiting: Promise[None] | None = None
        self._watches: dict[Contender, Callable[[], None]] = {}
        self._guard: Callable[[], None] | None = None
        self._withdrawal: Promise[bool] | None = None

    @property
    def lost(self) -> CoordlockError | None:
        """Why the contender was lost, or None: it lives or was withdrawn. Looks at the clock."""
        return self.end.result() if self.end.done() else self.session.ended

    @property
    def withdrawn(self) -> bool:
        """Whether `withdraw` was called."""
        return self._withdrawal is not None

    @property
    def was_missing(self) -> bool:
        """Whether the withdrawal found nothing to remove: it was lost, and nothing had told so."""
        removal = self._withdrawal
        return (
            removal is not None
            and removal.done()
            and removal.exception() is None
            and not removal.result()
        )

    def enqueue(self) -> Steps[Snapshot]:
        """Send the entry, again where no answer came; the queue with its contender in it."""
        try:
            snapshot = yield from retried(lambda: self.unless_lost(self._send()), self._timers)
        except SessionLost as error:
            self.session.gone_with(error)
            raise
        self._in_flight = _ANSWERED  # what it answered is known, and need not be kept
        self._asked = None
        self.contender = snapshot.find(self.entry.id)
        if self.contender is None:
            raise Evicted(self.entry.queue)  # before the queue was read
        return snapshot

    def unless_lost(self, future: Future[T]) -> Future[T]:
        """``future``, but failing when the contender is lost, whether it is answered or not."""
        if future.done():
            return future
        promise = copied(future)
        with self._lock:
            self._asked = promise  # one at a time is waited for
        if self._news is not None:
            promise.fail(self._news)
        return promise

    def check(self) -> None:
        """Raise why the contender is lost, if it is. Looks at the clock."""
        if (lost := self.lost) is not None:
            raise copy(lost)

    def departure(self, blockers: Iterable[Contender], revision: int) -> Promise[None]:
        """A promise that is kept when any of ``blockers`` has left the queue after ``revision``.

        It fails when this ticket's own contender is lost.
        """
        waiting: Promise[None] = Promise()
        with self._lock:
            self._waiting = waiting
        if self._news is not None:
            waiting.fail(self._news)
        wanted = dict.fromkeys(blockers).keys()  # in order: what is simulated can be repeated
        with self._lock:
            missing = [one for one in wanted if one not in self._watches]
            unwanted = [self._watches.pop(one) for one in self._watches.keys() - wanted]
        for cancel in unwanted:
            cancel()
        for contender in missing:
            self._watch(contender, revision)
        if wanted & self.departed:
            waiting.resolve(None)
        return waiting

    def guard(self, revision: int, *, at_once: bool = False) -> None:
        """Watch the own contender from ``revision`` on, after a moment or ``at_once``."""
        self._asked = None  # it has been answered, and need not be kept
        if self._guard is not None:
            return
        if at_once:
            self._watch_own(revision)
        else:
            when = self._timers.clock.now() + _GUARD_DELAY
            timer: Timer = self._timers.call_at(when, partial(self._watch_own, revision))
            self._guard = timer.cancel

    def lose(self, error: CoordlockError) -> None:
        """The contender is gone, or counts as gone: its waiter or holder is told."""
        self.end.resolve(error)
        with self._lock:
            self._news = self._news or error
            waiting = self._asked, self._waiting
        for promise in waiting:
            if promise is not None:
                promise.fail(error)

    def removed(self, in_order: bool = False) -> None:
        """The service says that the contender is not in the queue, in whichever order."""
        if not self.withdrawn:
            # Sessions that end take their contenders along. In a process that stood still, this
            # news may come before its timers do, so the session looks at the clock.
            ended = self.session.ended
            self.lose(Evicted(self.entry.queue) if ended is None else copy(ended))
            # A lease that was revoked looks like an eviction; the next heartbeat tells.
            self.session.recovered()

    def withdraw(self) -> Promise[bool]:
        """Remove the contender, now or as soon as it is known; whether it was there.

        Safe at any moment, from any thread, and more than once: also while the entry is on its way
        or after its reply was lost. It never blocks and is repeated until the service has answered
        or the session is gone there; after an outage at once.
        """
        promise: Promise[bool] | None = None
        try:
            with self._lock:
                if self._withdrawal is not None:
                    return self._withdrawal
                promise = self._withdrawal = Promise()
            self._begin(promise)
        except BaseException:
            # Ctrl-C in the thread that gives up, which will not ask again: another one goes on.
            if promise is not None:
                self._begin_soon(promise)
            raise
        return promise

    def _begin_soon(self, promise: Promise[bool]) -> None:
        with suppress(ClientClosed):
            self._timers.call_at(self._timers.clock.now(), partial(self._begin, promise, True))

    def _begin(self, promise: Promise[bool], again: bool = False) -> None:
        self.end.resolve(self.session.ended)  # a loss that nothing has told yet is one, too
        run_in_background(self._withdraw(promise, again))

    def _send(self) -> Future[Snapshot]:
        if (ended := self.session.ended) is not None:
            return failed(copy(ended))
        with self._lock:
            if self._withdrawal is not None:
                # By another thread, which closes the client: nobody would remove it any more.
                return failed(self._news or ClientClosed())
            self._attempts += 1
        self._in_flight = self._backend.enqueue(self.entry)
        return self._in_flight

    def _watch(self, contender: Contender, revision: int) -> None:
        departed = partial(Ticket._depart, self, contender)  # smaller than with a bound method
        cancel = self._backend.watch(contender, revision, departed, self.contender)
        with self._lock:
            withdrawn = self._withdrawal is not None
            if not withdrawn:
                self._watches[contender] = cancel
        if withdrawn:
            cancel()

    def _depart(self, contender: Contender, in_order: bool) -> None:
        with self._lock:
            self.doubted = self.doubted or not in_order
            self.departed |= {contender}  # a new set: others read it without the lock
            waiting = self._waiting
        if waiting is not None:
            waiting.resolve(None)

    def _watch_own(self, revision: int) -> None:
        assert self.contender is not None
        if self.end.done():
            return
        cancel = self._backend.watch(self.contender, revision, self.removed)
        with self._lock:
            self._guard = cancel
            withdrawn = self._withdrawal is not None
        if withdrawn:
            cancel()

    def _withdraw(self, promise: Promise[bool], again: bool) -> Steps[None]:
        """Remove the contender; ``again`` where Ctrl-C has ended an attempt, which may have."""
        try:
            if not self._attempts:
                promise.resolve(False)
                return
            # Ctrl-C may have come while it was sent.
            if self._in_flight is not None and not self._in_flight.done():
                yield settled(self._in_flight)
            removal = Removal(self.entry, self.session, self._backend, self._timers, self._recovery)
            removed = yield from removal.steps()
            self.withdrew = removed.was_there and removed.is_certain and not again
            in_doubt = self._attempts > 1 or self._may_arrive_late()
            if not in_doubt:
                self._on_withdrawn(self)  # whatever closes the client is told by the promise
            promise.resolve(removed.was_there or again)
            self._unwatch()  # not before: the contender behind waits for the removal alone
            if in_doubt:
                yield from removal.repeated()
        except ClientClosed:
            promise.resolve(False)
        except Exception as error:
            log.error("could not withdraw from %r: %s", self.entry.queue, error)
            promise.fail(error)
            yield self._over()  # it stands, and must not pass for another client's
            raise
        except KeyboardInterrupt:
            # In the thread that goes on here: another one does.
            self._begin_soon(promise)
            raise
        finally:
            if promise.done():  # else Ctrl-C came, and it is begun again
                self._on_withdrawn(self)
            self._unwatch()

    def _may_arrive_late(self) -> bool:
        """Whether the request has no answer, so that it may take effect after the removal."""
        sent = self._in_flight
        # In the first two cases another thread is sending it.
        return sent is None or not sent.done() or isinstance(sent.exception(), BackendUnavailable)

    def _over(self) -> Promise[None]:
        """A promise that is kept when the contender is told to be gone, though it was withdrawn."""
        over: Promise[None] = Promise()
        with self._lock:
            self._waiting = over
            is_over = self._news is not None
        if is_over:
            over.resolve(None)
        return settled(over)

    def _unwatch(self) -> None:
        with self._lock:
            watches, self._watches = self._watches, {}
            guard, self._guard = self._guard, None
        for cancel in (*watches.values(), *([guard] if guard else [])):
            cancel()
