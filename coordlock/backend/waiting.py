"""Waiting in queues: watch those ahead, and read the queues where departures prove too little."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from coordlock.backend.contract import Backend
from coordlock.model.claim import Convertible
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.handover import Departure
from coordlock.runtime.promise import Promise, all_of

__all__ = ["Waiting"]


class Waiting:
    """The wait of contenders that are granted together, each in another queue. Safe for threads."""

    __slots__ = ("_backend", "_contenders", "_departures", "_lock", "_next", "_queues", "_watches")

    def __init__(
        self, backend: Backend, queues: Sequence[str], contenders: Sequence[Contender]
    ) -> None:
        self._backend = backend
        self._queues = queues
        self._contenders = contenders
        self._lock = threading.RLock()
        self._next: Promise[None] = Promise()
        self._departures: dict[Contender, Departure] = {}
        #: What cancels each watch; None once the wait is over.
        self._watches: dict[Contender, Callable[[], None]] | None = {}

    def departure(self, blockers: Mapping[Contender, int]) -> Promise[None]:
        """A promise that is kept when one of ``blockers`` has left its queue after a revision.

        The `departures` tell which. No others are watched any longer.
        """
        with self._lock:
            waiting = self._next = Promise()
            watches = self._watches or {}
            missing = [blocker for blocker in blockers if blocker not in watches]
            unwanted = [watches.pop(other) for other in watches.keys() - blockers.keys()]
            if blockers.keys() & self._departures.keys():
                missing = []
                waiting.resolve(None)
        for cancel in unwanted:
            cancel()
        for contender in missing:
            self._watch(contender, blockers[contender])
        return waiting

    def departures(self) -> dict[Contender, Departure]:
        """Those that have left since the last call, and what their departures prove."""
        with self._lock:
            departures, self._departures = self._departures, {}
        return departures

    def read(self, *, conflicting: bool = False) -> Promise[tuple[Snapshot, ...]]:
        """Read all queues anew, each up to the contender that waits there: see `Backend.snapshot`.

        The readings need not be of one moment. A removal after one of them is like a removal after
        the grant: the watches on the waiting contenders report it.
        """
        pairs = zip(self._queues, self._contenders, strict=True)
        return all_of(self._backend.snapshot(*pair, conflicting=conflicting) for pair in pairs)

    def stop(self) -> None:
        """Watch none any longer, nor later. Idempotent."""
        with self._lock:
            watches, self._watches = self._watches or {}, None
        for cancel in watches.values():
            cancel()

    def _watch(self, contender: Contender, revision: int) -> None:
        on_departure = partial(Waiting._departed, self, contender)  # smaller than a bound method
        changes = isinstance(contender.claim, Convertible)
        cancel = self._backend.watch(
            contender, revision, on_departure, waiters=self._contenders, changes=changes
        )
        with self._lock:
            is_over = self._watches is None
            if self._watches is not None and contender not in self._departures:
                self._watches[contender] = cancel
        if is_over:
            cancel()

    def _departed(self, contender: Contender, departure: Departure) -> None:
        with self._lock:
            self._departures[contender] = departure
            if self._watches is not None:
                self._watches.pop(contender, None)
            waiting = self._next
        waiting.resolve(None)
