"""Following data and queues: one thread per client, asleep until another process writes to it.

A message only names what may have changed, which is then read anew. A client that follows a key, a
folder or a queue subscribes to it, and then reads it; a process that changes it tells subscribers
afterwards. A queue also changes when a process dies that has a contender in it: the pipe of its
session ends.
"""

from __future__ import annotations

import os
import threading
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


class Followers:
    """The observations of one client, in a session of their own, which its thread starts.

    A place is known by the path of the directory of those that have subscribed to it.
    """

    def __init__(self, directory: Directory, timers: Timers, attempt: Attempt) -> None:
        """``attempt`` makes a reading in a thread."""
        self._directory = directory
        self._timers = timers
        self._attempt = attempt
        self._lock = threading.RLock()
        self._observers = Observers(self, timers.clock, self._lock)
        self._session = LocalSession(directory)
        self._listener = Listener(self._session, self, self._lock, "coordlock-local-observer")
        #: The sessions of the contenders in what is followed.
        self._members: dict[str, set[str]] = {}

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
            read = partial(self._read_queue, path, queue)
        reading = partial(self._attempt, partial(_available, read))
        return self._observers.observe(path, reading if reads else None, news)

    def close(self) -> None:
        """End all observations and the thread."""
        self._observers.close(BackendUnavailable(SERVICE, "the client was closed"))
        self._listener.close()
        self._session.end()

    # See `Reporter`

    def report(self, path: str) -> bool:
        self._listener.start()
        self._subscribe(path)
        return self._session.pipe is not None

    def unreport(self, path: str) -> None:
        self._members.pop(path, None)
        unsubscribe(path, self._session.id)

    def pause(self) -> Promise[None]:
        return sleep(self._timers, _RETRY_S)

    # For the listener

    def sessions(self) -> Iterable[str]:
        return sorted(set[str]().union(*self._members.values()))[:_MAX_ENDS]

    def look(self, names: set[str] | None) -> None:
        for path in self._observers.places():
            if names is None:
                self._subscribe(path)  # somebody may have removed it
                self._observers.live(path)
            elif not names.isdisjoint([os.path.basename(path), *self._members.get(path, ())]):
                self._observers.changed(path)

    def _subscribe(self, path: str) -> None:
        """Before it is read, so that nothing falls between."""
        with self._lock, suppress(OSError):  # no space: it is read now and then
            if path in self._observers.places():
                subscribe(self._directory, path, self._session.id)

    def _read_queue(self, path: str, queue: LocalQueue) -> Snapshot:
        found = queue.snapshot(owners=True)
        with self._lock:
            if path in self._observers.places():
                self._members[path] = {one.session for one in found.contenders}
                self._listener.wake()
        return found


def _available(read: Callable[[], Any]) -> Any:
    """What ``read`` returns. What the system refuses it may allow later."""
    try:
        return read()
    except CoordlockError:  # some are OSErrors
        raise
    except OSError as error:
        raise BackendUnavailable(SERVICE, translated(error).reason) from error
