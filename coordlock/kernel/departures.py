"""The earlier contenders that a ticket waits for, as they leave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from coordlock.backend import Backend
from coordlock.model.claim import Convertible
from coordlock.model.contender import Contender
from coordlock.runtime.promise import Promise

__all__ = ["Departures"]

_NONE: Final[frozenset[Contender]] = frozenset()  # Python makes a new one each time


class Departures:
    """What ``waiters`` learn of those before them: which have departed, and in which order."""

    __slots__ = (
        "_backend",
        "_doubts",
        "_lock",
        "_settled",
        "_waiters",
        "_waiting",
        "_watches",
        "seen",
    )

    def __init__(self, backend: Backend, waiters: Sequence[Contender]) -> None:
        #: Those that were waited for and have departed; of convertible ones, that have changed.
        self.seen = _NONE
        self._backend = backend
        self._waiters = waiters
        self._lock = threading.RLock()
        #: How many doubts there were, and how many of them a reading of the queues has settled.
        #: Only the caller of acquire writes the second, so no doubt that comes meanwhile is lost.
        self._doubts = self._settled = 0
        self._waiting: Promise[None] | None = None
        self._watches: dict[Contender, Callable[[], None]] | None = {}

    @property
    def watched(self) -> tuple[Contender, ...]:
        """Those that are watched now."""
        return tuple(self._watches or ())

    @property
    def in_doubt(self) -> bool:
        """Whether a waiter may have left its queue before a departure that was seen.

        Then departures prove nothing before the queues are read.
        """
        return self._settled != self._doubts

    def doubt(self) -> None:
        """Let nothing be proved by what was seen so far."""
        with self._lock:
            self._doubts += 1

    def reads(self) -> None:
        """A reading of the queues of all waiters is sent now. It settles the doubts before it."""
        self._settled = self._doubts

    def any_of(self, blockers: Mapping[Contender, int]) -> Promise[None]:
        """A promise that is kept when any of ``blockers`` has left its queue after a revision."""
        waiting: Promise[None] = Promise()
        wanted = blockers.keys()  # in order: what is simulated can be repeated
        with self._lock:
            self._waiting = waiting
            watches = self._watches or {}
            missing = [one for one in wanted if one not in watches]
            unwanted = [watches.pop(one) for one in watches.keys() - wanted]
        for cancel in unwanted:
            cancel()
        for contender in missing:
            self._watch(contender, blockers[contender])
        if wanted & self.seen:
            waiting.resolve(None)
        return waiting

    def stand_again(self, contenders: Iterable[Contender]) -> None:
        """Those ``contenders`` have not departed, as a later reading shows, but some have changed.

        They are watched anew.
        """
        places = {(c.key, c.order) for c in contenders if isinstance(c.claim, Convertible)}
        if not places:
            return
        with self._lock:
            changed = {one for one in self.seen if (one.key, one.order) in places}
            self.seen -= changed
            watches = self._watches or {}
            for one in changed:
                watches.pop(one, None)

    def stop(self) -> None:
        """Watch none of them any longer, nor later. Idempotent."""
        with self._lock:
            watches, self._watches = self._watches or {}, None
        for cancel in watches.values():
            cancel()

    def _watch(self, contender: Contender, revision: int) -> None:
        departed = partial(Departures._depart, self, contender)  # smaller than with a bound method
        changes = isinstance(contender.claim, Convertible)
        cancel = self._backend.watch(
            contender, revision, departed, waiters=self._waiters, changes=changes
        )
        with self._lock:
            has_stopped = self._watches is None
            if self._watches is not None:
                self._watches[contender] = cancel
        if has_stopped:
            cancel()

    def _depart(self, contender: Contender, in_order: bool) -> None:
        with self._lock:
            if not in_order:
                self._doubts += 1  # before it is seen
            self.seen |= {contender}  # a new set: others read it without the lock
            waiting = self._waiting
        if waiting is not None:
            waiting.resolve(None)
