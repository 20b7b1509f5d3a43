"""Following data and queues: one thread per client, asleep until another process writes to it.

A message only names what may have changed, which is then read anew. A client that follows a key, a
folder or a queue subscribes to it, and then reads it; a process that changes it tells subscribers
afterwards. A process that dies tells nobody: its contenders are missed when all is read anew, as it
is now and then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from coordlock.backend import Observation, Queue
from coordlock.backend.observers import Observers
from coordlock.errors import BackendUnavailable, CoordlockError
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

Attempt = Callable[[Callable[[], Any]], Promise[Any]]


class Followers(Listener):
    """The observations of one client, in a session of their own, which its thread starts.

    A place is known by the path of the directory of those that have subscribed to it.
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
            path = self._directory.change(place)
            read: Callable[[], Any] = partial(DataFile(self._directory).read, place)
        else:
            queue = LocalQueue(self._directory, place.name)
            path = self._directory.observers(os.path.basename(queue.path))
            read = partial(queue.snapshot, owners=True)
        reading = partial(self._attempt, partial(_available, read))
        return self._observers.observe(path, reading if reads else None, news)

    def close(self) -> None:
        """End all observations and the thread."""
        self._observers.close(BackendUnavailable(SERVICE, "the client was closed"))
        super().close()
        self._session.end()

    # See `Reporter`

    def report(self, path: str) -> bool:
        self.start()
        self._subscribe(path)
        return self._session.pipe is not None

    def unreport(self, path: str) -> None:
        unsubscribe(path, self._session.id)

    def pause(self) -> Promise[None]:
        return sleep(self._timers, _RETRY_S)

    # For the listener

    def look(self, names: set[str] | None) -> None:
        for path in self._observers.places():
            if names is None:
                self._subscribe(path)  # somebody may have removed it
                self._observers.live(path)
            elif os.path.basename(path) in names:
                self._observers.changed(path)

    def _subscribe(self, path: str) -> None:
        """Before it is read, so that nothing falls between."""
        with self.lock, suppress(OSError):  # no space: it is read now and then
            if path in self._observers.places():
                subscribe(self._directory, path, self._session.id)


def _available(read: Callable[[], Any]) -> Any:
    """What ``read`` returns. What the system refuses it may allow later."""
    try:
        return read()
    except CoordlockError:  # some are OSErrors
        raise
    except OSError as error:
        raise BackendUnavailable(SERVICE, translated(error).reason) from error
