"""Following a state of the service: always the newest, and nothing else is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from coordlock.errors import CoordlockError
from coordlock.runtime.process import PROCESS

__all__ = ["Observation", "Queue", "View"]


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as what is followed; keys and folders of data are followed by their paths."""

    name: str


class Revised(Protocol):
    """A state that names the service's revision that it shows."""

    @property
    def revision(self) -> int:
        """Never smaller in a later state."""


S_co = TypeVar("S_co", bound=Revised, covariant=True)
S = TypeVar("S", bound=Revised)


@dataclass(frozen=True, slots=True)
class View(Generic[S_co]):
    """What an observation knows at one moment.

    Attributes:
        state: the newest state that came, complete; None before the first.
        stale_since: since when a change may have been missed, in seconds of the client's clock;
            None while changes come as they happen.
        ended: why nothing more comes; None while the observation goes on.
    """

    state: S_co | None
    stale_since: float | None
    ended: CoordlockError | None = None


class Observation(Generic[S]):
    """Keeps the newest state, and reports that there is one. Safe for threads.

    The observer looks at `view` when ``news`` was called, and once after it got the observation,
    because the first news may come before. However slow it is, one view is kept: states that it
    did not look at in time are skipped, and it never sees an older one after a newer.

    The backend promises:

    * A state is what the service had at one moment, as a whole. The service had the states in the
      order in which they are shown. The same one may be shown twice.
    * After a change, the view shows it or a later one in the end. That holds through lost
      connections, states that the service no longer has (compaction) and new sessions, until
      `cancel`, the backend's `close`, or an error that no repetition mends, such as
      `AuthenticationFailed`.
    * What changes all the time is shown, too, if not every state.
    * When a connection is lost or silent, ``stale_since`` says so, at the latest when a session
      with such a connection would be in doubt. It is not later than the last moment at which the
      service certainly reported all changes. It is None again only when the whole state was read
      anew. A backend that reads a state in parts sets it, too, when these change faster than it can
      read them, until it has read a state.

    ``news`` is called from any thread. It must neither block nor raise. After `cancel`, only a call
    that was under way may still come.
    """

    def __init__(
        self, news: Callable[[], None], stop: Callable[[], None], stale_since: float
    ) -> None:
        """For backends: ``stop`` is called once, when `cancel` or `end` comes first."""
        self._news: Final = news
        self._stop: Final = stop
        self._lock: Final = threading.Lock()
        self._view: View[S] = View(None, stale_since)
        self._over = False
        self._pid: Final = PROCESS.id

    @property
    def view(self) -> View[S]:
        """What is known now."""
        return self._view

    def cancel(self) -> None:
        """End the observation; idempotent. The last view stays, and nothing is reported.

        In the child of a fork it goes on for the parent, of which a thread may hold the lock.
        """
        if self._pid != PROCESS.id:
            return
        with self._lock:
            if self._over:
                return
            self._over = True
        self._stop()

    # For backends

    def show(self, state: S) -> None:
        """Show ``state``, unless its revision is smaller than that of the state it shows.

        After a gap it shows any revision: the service may have been restored from a backup.
        """
        with self._lock:
            newest, is_stale = self._view.state, self._view.stale_since is not None
            if self._over or not (is_stale or newest is None or state.revision >= newest.revision):
                return
            self._view = View(state, None)
        self._news()

    def doubt(self, since: float) -> None:
        """Take the view for stale; what is stale since earlier stays so."""
        with self._lock:
            if self._over or self._view.stale_since is not None:
                return
            self._view = replace(self._view, stale_since=since)
        self._news()

    def end(self, error: CoordlockError, since: float) -> None:
        """End the observation because of ``error``; the view is stale from then on."""
        with self._lock:
            if self._over:
                return
            self._over = True
            stale = self._view.stale_since
            self._view = replace(
                self._view, stale_since=since if stale is None else stale, ended=error
            )
        self._stop()
        self._news()
