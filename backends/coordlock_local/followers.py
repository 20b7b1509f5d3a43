"""Following data and queues: one thread per client, asleep until another process writes to it.

A message only names what may have changed, which is then read anew. A client that follows a key, a
folder or a queue subscribes to it, and then reads it; a process that changes it tells subscribers
afterwards. A queue also changes when a process dies that has a contender in it: the pipe of its
session ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from coordlock.backend import Observation, Queue
from coordlock.backend.observers import Observers
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.promise import Promise
from coordlock_local.data import DataFile
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, translated
from coordlock_local.listening import Listener
from coordlock_local.pipes import subscribe, unsubscribe
from coordlock_local.queue import LocalQueue
from coordlock_local.session import LocalSession

__all__ = ["Followers"]

#: Seconds until another attempt, where something could not be read.
_RETRY_S: Final = 0.02
#: For the ends of how many sessions a client waits: programs may open few files. Others' deaths are
#: noticed when everything is read again.
_MAX_ENDS: Final = 64

Attempt = Callable[[Callable[[], Any]], Promise[Any]]


class Followers(Listener):
    """The observations of one client, in a session of their own, which its thread starts.

    The key of a place is the name that messages in pipes give it.
    """

    def __init__(self, directory: Directory, timers: Timers, attempt: Attempt) -> None:
        """``attempt`` makes a reading in a thread."""
        super().__init__(LocalSession(directory), "coordlock-local-observer")
        self._directory = directory
        self._timers = timers
        self._attempt = attempt
        self._observers = Observers(self, timers.clock, self.lock)

    def follow(
        self, place: Queue | str, news: Callable[[], None], *, reads: bool = True
    ) -> Observation[Any]:
        """See `Backend.follow`, and `Backend.follow_news` where nothing ``reads`` the place."""
        if isinstance(place, str):
            name = self._directory.change(place)
            read: Callable[[], Any] = partial(DataFile(self._directory).read, place)
        else:
            queue = LocalQueue(self._directory, place.name)
            name = os.path.basename(queue.path)
            read = partial(queue.snapshot, owners=True)
            news = partial(self._shown, news)
        reading = partial(self._attempt, partial(_available, self._directory.root, read))
        return self._observers.observe(name, reading if reads else None, news)

    def close(self) -> None:
        """End all observations and the thread."""
        self._observers.close(BackendUnavailable(SERVICE, "the client was closed"))
        super().close()
        self._session.end()

    # See `Reporter`

    def report(self, name: str) -> bool:
        self.start()
        self._subscribe(name)
        return self._session.pipe is not None

    def unreport(self, name: str) -> None:
        unsubscribe(self._directory, name, self._session.id)

    def pause(self) -> Promise[None]:
        return sleep(self._timers, _RETRY_S)

    # For the listener

    def sessions(self) -> Iterable[str]:
        shown = map(self._observers.state, self._observers.places())
        queues = [state for state in shown if isinstance(state, Snapshot)]
        return sorted({one.session for queue in queues for one in queue.contenders})[:_MAX_ENDS]

    def look(self, names: set[str] | None) -> None:
        for name in self._observers.places():
            if names is None:
                self._subscribe(name)  # somebody may have removed it
                self._observers.live(name)
            elif name in names:
                self._observers.changed(name)

    def _shown(self, news: Callable[[], None]) -> None:
        self.wake()  # the ends of other sessions may matter now
        news()

    def _subscribe(self, name: str) -> None:
        """Before it is read, so that nothing falls between."""
        with self.lock, suppress(OSError):  # no space: it is read now and then
            if name in self._observers.places():
                subscribe(self._directory, name, self._session.id)


def _available(root: str, read: Callable[[], Any]) -> Any:
    """What ``read`` returns. What the system refuses it may allow later."""
    try:
        return read()
    except CoordlockError:  # some are OSErrors
        raise
    except OSError as error:
        raise BackendUnavailable(SERVICE, translated(error, root).reason) from error
