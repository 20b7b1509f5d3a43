"""The contenders whose departures a client awaits: each once, however many wait for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Generic, TypeVar

from coordlock.model.contender import Contender
from coordlock.model.handover import Departure
from coordlock.runtime.process import PROCESS
from coordlock.runtime.promise import call_each

__all__ = ["Watch", "WatchTable", "Watched"]


class Watched:
    """A contender that is watched. A service adds what it needs to ask for it.

    Attributes:
        key: the same for two exactly if they are one for the service.
        watches: what to call; few, so a list is smallest. Empty once it is not watched any more.
    """

    __slots__ = ("key", "watches")

    def __init__(self, key: Hashable) -> None:
        self.key: Final = key
        self.watches: Final[list[Watch]] = []


W = TypeVar("W", bound=Watched)


class Watch:
    """One call of `Backend.watch`."""

    __slots__ = ("_cancel", "_watched", "on_departure", "version", "waiters")

    def __init__(
        self,
        cancel: Callable[[Watched, Watch], object],
        watched: Watched,
        on_departure: Callable[[Departure], None],
        waiters: Sequence[Contender],
        version: int,
    ) -> None:
        self._cancel = cancel
        self._watched = watched
        self.on_departure = on_departure
        #: The contenders to which a departure may prove something; none where values matter.
        self.waiters = () if version else waiters
        #: The version of the value that is known; 0 where only the departure matters.
        self.version = version

    def __call__(self) -> None:
        """Cancel it. Idempotent."""
        self._cancel(self._watched, self)


class WatchTable(Generic[W]):
    """What a client watches. A service asks for what is new here, and reports what happens.

    Safe for threads. Watches are called without the lock.

    Args:
        lock: a reentrant lock, which the caller of `add` and `clear` holds.
        unwatch: called with the lock held when a contender's last watch has gone.

    Attributes:
        watched: all that is watched, by key.
    """

    def __init__(
        self, lock: AbstractContextManager[Any], unwatch: Callable[[W], object] = lambda _: None
    ) -> None:
        self._lock: Final = lock
        self._unwatch: Final = unwatch
        self._pid: Final = PROCESS.id
        self.watched: Final[dict[Hashable, W]] = {}
        self._cancelled = self._cancel  # one bound method for all

    def add(
        self,
        wanted: W,
        on_departure: Callable[[Departure], None],
        waiters: Sequence[Contender] = (),
        version: int = 0,
    ) -> tuple[W, Watch]:
        """Watch ``wanted``, or what is watched under its key already; which, and what cancels it.

        With a ``version``, for `report_value` too.
        """
        watched = self.watched.setdefault(wanted.key, wanted)
        watch = Watch(self._cancelled, watched, on_departure, waiters, version)
        watched.watches.append(watch)
        return watched, watch

    def discard(self, wanted: W) -> None:
        """Forget ``wanted``: a signal handler raised before the client asked the service for it."""
        wanted.watches.clear()
        self._forget(wanted)

    def clear(self) -> None:
        """Watch nothing any more: the session has ended."""
        for watched in self.watched.values():
            watched.watches.clear()
        self.watched.clear()

    def report(
        self, watched: W, proof: Callable[[Sequence[Contender]], Departure] | None = None
    ) -> None:
        """It has left: call all its watches, also those that are added meanwhile.

        ``proof`` says what this proves to a watch's waiters; it is called just before the watch.
        """
        try:
            call_each(watched.watches, partial(self._call, proof))
        finally:
            with self._lock:
                self._forget(watched)
            if watched.watches:
                self.report(watched)

    def report_value(self, watched: W, version: int) -> None:
        """Its value has this ``version``: call the watches that know another."""

        def call(watch: Watch) -> None:
            if watch in watched.watches:  # else it was cancelled meanwhile
                self._call(None, watch)
                self._cancel(watched, watch)  # only now: a signal handler may raise before the call

        known = watched.watches.copy()
        call_each([watch for watch in known if 0 < watch.version != version], call)

    def _call(self, proof: Callable[[Sequence[Contender]], Departure] | None, watch: Watch) -> None:
        departure = Departure.UNORDERED
        if proof is not None and watch.waiters:
            departure = proof(watch.waiters)
        watch.on_departure(departure)

    def _cancel(self, watched: Watched, watch: Watch) -> bool:
        """Call ``watch`` no more; whether it was still to be called."""
        if self._pid != PROCESS.id:
            return False  # the parent has the watch, and a thread of it may hold the lock
        with self._lock:
            try:
                watched.watches.remove(watch)
            except ValueError:
                return False
            self._forget(watched)
            return True

    def _forget(self, watched: Watched) -> None:
        """Stop watching it once its last watch has gone."""
        if not watched.watches and self.watched.get(watched.key) is watched:
            self._unwatch(self.watched.pop(watched.key))
