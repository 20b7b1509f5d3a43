"""A place that is followed, and what its observers are shown."""

from __future__ import annotations

from typing import Any, Final

from coordlock.backend import Source
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.places import Place

__all__ = ["Following"]


class Following:
    """A place that observers follow, and what the client knows of it.

    The caller of every method holds the lock of `Observations`.

    Args:
        since: the present, in which nothing is known yet.

    Attributes:
        source: what its observers see. They are called without the lock.
        read_at: when its last reading was sent.
        id: its watch on the stream that is open; 0 for none.
        left_at: when the last observer left.
        is_leaving: whether a timer runs that drops the place if it has no observers then.
        generation: incremented when the place becomes stale, and when it is fresh again.
    """

    def __init__(self, place: Place[Any, Any], since: float) -> None:
        self.place: Final = place
        self.source: Final[Source[Any]] = Source(since)
        self.read_at = 0.0
        self.id = 0
        self.left_at = 0.0
        self.is_leaving = False
        self.generation = 0
        #: Whether etcd has filed its watch, and whether it is to be read before it is shown.
        self._is_filed = self._is_unread = False

    @property
    def is_live(self) -> bool:
        """Whether changes come as they happen, and may be shown."""
        return self.source.view.stale_since is None

    def begin(self, now: float) -> None:
        """Read the place anew for another observer, before that sees anything."""
        self._is_unread = True
        self.source.doubt(now)
        self.generation += 1

    def read(self, parts: dict[str, Any], revision: int, read_at: float) -> bool:
        """Take a reading that was sent at ``read_at``; whether the state is as new as that."""
        is_read = self.place.read(parts, revision)
        if is_read:
            self.read_at, self._is_unread = read_at, False
            self._show()
        return is_read

    def take(self, response: pb.WatchResponse) -> bool:
        """Take a response to its watch; whether observers are to be called."""
        is_new = self.place.apply(response)
        if response.created:
            self._is_filed = is_new = True
        if is_new:
            self._show()
        return is_new

    def _show(self) -> None:
        if self._is_filed and not self._is_unread:
            if not self.is_live:
                self.generation += 1
            self.source.show(self.place.state)

    def stop(self, delivered_until: float) -> None:
        """It is stale from now on. If it was live, all until ``delivered_until`` is known."""
        self.id = 0
        self._is_filed = False
        self.place.restart()
        self.source.doubt(max(self.read_at, delivered_until))
        self.generation += 1
