"""A place that is followed, and what those who observe it are told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from coordlock.backend import Observation
from coordlock.errors import CoordlockError
from coordlock.runtime.log import Log
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.places import Place

__all__ = ["Following"]

log = Log("coordlock")


class Following:
    """A place, and the observations of it. Observers are told without the lock, by any thread.

    Args:
        lock: of all followings of a client; held by the caller of what says so.
        since: the present, in which nothing is known yet.

    Attributes:
        observers: the observations that go on.
        read_at: when its last reading was sent.
        id: its watch on the stream that is open; 0 for none.
        is_live: whether changes come as they happen, and may be shown.
        left_at: when the last observer left.
        is_leaving: whether a timer runs, at whose end a place without observers is dropped.
        generation: incremented when the place becomes stale, and when it is fresh again.
    """

    def __init__(self, place: Place[Any, Any], lock: threading.RLock, since: float) -> None:
        self.place: Final = place
        self.observers: list[Observation[Any]] = []
        self.read_at = 0.0
        self.id = 0
        self.is_live = False
        self.left_at = 0.0
        self.is_leaving = False
        self.generation = 0
        #: Whether etcd has filed its watch, and whether it is to be read before it is shown.
        self._is_filed = self._is_unread = False
        self._lock: Final = lock
        self._since = since

    # With the lock held

    def begin(self) -> None:
        """A new observer comes, who must not be shown what was known before."""
        self._is_unread, self.is_live = True, False
        self.generation += 1

    def read(self, parts: dict[str, Any], revision: int, read_at: float) -> bool:
        """Take a reading that was sent at ``read_at``; whether the state is as new as that."""
        is_read = self.place.read(parts, revision)
        if is_read:
            self.read_at, self._is_unread = read_at, False
            self._go_live()
        return is_read

    def take(self, response: pb.WatchResponse) -> bool:
        """Take what its watch tells; whether observers are to be told."""
        is_new = self.place.apply(response)
        if response.created:
            self._is_filed = is_new = True
            self._go_live()
        return is_new

    def _go_live(self) -> None:
        if self._is_filed and not self._is_unread and not self.is_live:
            self.is_live = True
            self.generation += 1

    def stop(self, told: float) -> None:
        """Put it in doubt. All was told up to the moment ``told``, if it was live then."""
        self.id = 0
        self._is_filed = False
        self.place.restart()
        if self.is_live:
            self._since = max(self.read_at, told)
            self.is_live = False
        self.generation += 1

    # Without it

    def tell(self, observers: Sequence[Observation[Any]] = ()) -> None:
        """Show the newest state, or that it is in doubt, to ``observers``, or all of them.

        Told again if it has changed meanwhile: what another thread tells may have come between.
        """
        generation = -1
        while generation != self.generation:
            with self._lock:
                generation, since = self.generation, self._since
                state = self.place.state if self.is_live else None
                told = observers or self.observers.copy()
            for observation in told:
                if state is None:
                    _call(lambda: observation.doubt(since))  # noqa: B023
                else:
                    _call(lambda: observation.show(state))  # noqa: B023

    def end(self, error: CoordlockError) -> None:
        """End all observations, because of ``error``. It has been stopped before."""
        with self._lock:
            observers, self.observers = self.observers, []
        for observation in observers:
            _call(lambda: observation.end(error, self._since))  # noqa: B023


def _call(tell: Callable[[], None]) -> None:
    try:
        tell()
    except Exception:
        log.exception("etcd: the callback of an observation failed")
