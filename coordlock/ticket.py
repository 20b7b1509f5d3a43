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
from coordlock.caller import Caller
from coordlock.clock import Timer, Timers, sleep
from coordlock.contender import Contender, Entry, Snapshot
from coordlock.driver import Steps, run_in_background
from coordlock.errors import (
    BackendUnavailable,
    ClientClosed,
    CoordlockError,
    Evicted,
    SessionLost,
)
from coordlock.log import Log
from coordlock.promise import Promise, copied, failed, resolved, settled
from coordlock.recovery import Recovery
from coordlock.retry import removal, retried
from coordlock.session import Session

__all__ = ["Ticket"]

log = Log("coordlock")

T = TypeVar("T")

_ANSWERED: Final[Promise[Any]] = resolved(None)

_NOBODY: Final[frozenset[Contender]] = frozenset()  # Python makes a new one each time

#: A watch on the own contender is armed after this many seconds, so that short holds save its
#: messages. It starts at a known revision, so nothing is missed; an eviction is only seen later.
_GUARD_DELAY: Final = 0.2
#: When a ticket in doubt is looked for again after its removal, in seconds from one to the next.
_CONFIRMATIONS: Final = (1.0, 5.0, 15.0, 60.0)


class Ticket:
    """One entry on its way through a queue: sent, waiting, granted, withdrawn.

    ``loss`` is kept with the error by which its contender was lost: the session ended, somebody
    removed it, the client was closed.
    """

    __slots__ = (
        "_asked",
        "_attempts",
        "_backend",
        "_guard",
        "_in_flight",
        "_lock",
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
        "entry",
        "finished",
        "granted",
        "loss",
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
        self.loss: Final[Promise[CoordlockError]] = Promise()
        #: Kept when the contender is lost or withdrawn.
        self.finished: Final[Promise[None]] = Promise()
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
        self._asked: Promise[Any] | None = None
        self._waiting: Promise[None] | None = None
        self._watches: dict[Contender, Callable[[], None]] = {}
        self._guard: Callable[[], None] | None = None
        self._withdrawal: Promise[bool] | None = None

    @property
    def withdrawn(self) -> bool:
        """Whether `withdraw` was called."""
        return self._withdrawal is not None

    def enqueue(self) -> Steps[Snapshot]:
        """Send the entry, again where no answer came; the queue with its contender in it."""
        try:
            snapshot = yield from retried(lambda: self.unless_lost(self._send()), self._timers)
        except SessionLost as error:
            self.note_end(error)
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
        if self.loss.done():
            promise.fail(self.loss.result())
        return promise

    def check(self) -> None:
        """Raise why the contender is lost, if it is. Looks at the clock."""
        if (ended := self.session.ended) is not None:
            raise copy(ended)
        if self.loss.done():
            raise self.loss.result()

    def departure(self, blockers: Iterable[Contender], revision: int) -> Promise[None]:
        """A promise that is kept when any of ``blockers`` has left the queue after ``revision``.

        It fails when this ticket's own contender is lost.
        """
        waiting: Promise[None] = Promise()
        with self._lock:
            self._waiting = waiting
        if self.loss.done():
            waiting.fail(self.loss.result())
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
        """The contender is gone, or counts as gone: whoever waits or holds is told."""
        self.loss.resolve(error)
        self.finished.resolve(None)
        with self._lock:
            waiting = self._asked, self._waiting
        for promise in waiting:
            if promise is not None:
                promise.fail(error)

    def removed(self) -> None:
        """The service says that the contender is not in the queue."""
        if not self.withdrawn:
            self.lose(Evicted(self.entry.queue))
            # A lease that was revoked looks the same; the next heartbeat tells.
            self.session.recovered()

    def note_end(self, error: SessionLost) -> None:
        """The service has said ``error`` of a session that was perhaps thought to live."""
        if self.session.ended is None:
            self.session.lost(error.reason)

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
            self._timers.call_at(self._timers.clock.now(), partial(self._begin, promise))

    def _begin(self, promise: Promise[bool]) -> None:
        self.finished.resolve(None)
        run_in_background(self._withdraw(promise))

    def _send(self) -> Future[Snapshot]:
        if (ended := self.session.ended) is not None:
            return failed(copy(ended))
        with self._lock:
            if self._withdrawal is not None:
                # By another thread, which closes the client: nobody would remove it any more.
                return failed(self.loss.result() if self.loss.done() else ClientClosed())
            self._attempts += 1
        self._in_flight = self._backend.enqueue(self.entry)
        return self._in_flight

    def _watch(self, contender: Contender, revision: int) -> None:
        departed = partial(Ticket._depart, self, contender)  # smaller than with a bound method
        cancel = self._backend.watch(contender, revision, departed)
        with self._lock:
            withdrawn = self._withdrawal is not None
            if not withdrawn:
                self._watches[contender] = cancel
        if withdrawn:
            cancel()

    def _depart(self, contender: Contender) -> None:
        # Now, and not when the waiter wakes: by then its watch may be on another server.
        if self.contender is None or not self._backend.told_in_order(self.contender):
            self.doubted = True
        with self._lock:
            self.departed |= {contender}  # a new set: others read it without the lock
            waiting = self._waiting
        if waiting is not None:
            waiting.resolve(None)

    def _watch_own(self, revision: int) -> None:
        assert self.contender is not None
        if self.loss.done() or self.withdrawn:
            return
        cancel = self._backend.watch(self.contender, revision, self.removed)
        with self._lock:
            self._guard = cancel
            withdrawn = self._withdrawal is not None
        if withdrawn:
            cancel()

    def _withdraw(self, promise: Promise[bool]) -> Steps[None]:
        try:
            if not self._attempts:
                promise.resolve(False)
                return
            # Ctrl-C may have come while it was sent.
            if self._in_flight is not None and not self._in_flight.done():
                yield settled(self._in_flight)
            removed, is_certain = yield from self._remove()
            self.withdrew = removed and is_certain
            # A request whose reply was lost may still take effect, even after the removal.
            sent = self._in_flight
            unknown = (
                sent is None
                or not sent.done()  # another thread is sending it
                or isinstance(sent.exception(), BackendUnavailable)
            )
            confirmations = _CONFIRMATIONS if unknown or self._attempts > 1 else ()
            if not confirmations:
                self._on_withdrawn(self)  # who closes the client is told by the promise
            promise.resolve(removed)
            self._unwatch()  # not before: whoever is next waits for the removal alone
            for delay in confirmations:
                yield sleep(self._timers, delay)
                yield from self._remove()
        except ClientClosed:
            promise.resolve(False)
        except Exception as error:
            log.error("could not withdraw from %r: %s", self.entry.queue, error)
            promise.fail(error)
            yield settled(self.loss)  # it stands, and must not pass for another client's
            raise
        except KeyboardInterrupt:
            # In the thread that goes on here: another one does.
            self._begin_soon(promise)
            raise
        finally:
            if promise.done():  # else Ctrl-C came, and it is begun again
                self._on_withdrawn(self)
            self._unwatch()

    def _unwatch(self) -> None:
        with self._lock:
            watches, self._watches = self._watches, {}
            guard, self._guard = self._guard, None
        for cancel in (*watches.values(), *([guard] if guard else [])):
            cancel()

    def _remove(self) -> Steps[tuple[bool, bool]]:
        """Whether the contender was there, and whether that is certain."""
        waited = False

        def pause(seconds: float) -> Promise[None]:
            nonlocal waited
            waited = True
            return self._recovery.pause(seconds)

        try:
            removed = yield from removal(self._ask_removal, self._timers, longest=5.0, pause=pause)
        except SessionLost as error:
            self.note_end(error)
            return False, True
        if waited and not self.session.gone:
            self._recovery.noticed()  # it was asked in vain before, and now the service answers
        return removed, not waited

    def _ask_removal(self) -> Future[bool]:
        return resolved(False) if self.session.gone else self._backend.withdraw(self.entry)
