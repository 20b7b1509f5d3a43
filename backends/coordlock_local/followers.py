"""Following data and queues: one thread per client, asleep until the system tells of a change.

A notice says only that something may have changed; what is followed is read anew then. Files tell:
``data.changes`` of data, the file of a queue of its contenders, and those of their sessions of the
death of their processes. Whoever changes something closes one of these after that.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

from coordlock.backend import Listing, Observation
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.log import Log
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock_local.data import DataFile
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy, translated
from coordlock_local.queue import Queue
from coordlock_local.watcher import notices

__all__ = ["Followers"]

log = Log("coordlock.local")

#: Seconds until another attempt, where something could not be read.
_PAUSE: Final = 0.02
#: How often a queue that changes is read again until two readings agree.
_READINGS: Final = 20

S = TypeVar("S", Listing, Snapshot)


class Followers:
    """The observations of one client. The thread starts with the first."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._data = DataFile(directory)
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._followed: dict[int, _Followed] = {}
        self._notices = notices()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def follow(self, where: str, news: Callable[[], None]) -> Observation[Listing]:
        """See `Data.follow`."""
        changes = self._directory.changes
        return self._add(lambda: self._data.read(where), lambda _: (changes,), news)

    def observe(self, queue: str, news: Callable[[], None]) -> Observation[Snapshot]:
        """See `ObservableQueues.observe`."""
        read = Queue(self._directory, queue)

        def files(state: Snapshot | None) -> Collection[str]:
            contenders = () if state is None else state.contenders
            sessions = {self._directory.session(one.session) for one in contenders}
            return (read.path, *sessions)

        return self._add(lambda: _agreed(read), files, news)

    def close(self) -> None:
        """End all observations and the thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            thread, left = self._thread, list(self._followed.values())
        for one in left:
            one.observation.end(_closed(), SYSTEM_CLOCK.now())
        if thread is None:
            self._notices.close()
            return
        self._notices.wake()
        if thread is not threading.current_thread():
            thread.join()

    def forget(self) -> None:
        """In a forked child: its threads are gone, and one of them may have held the lock."""
        self._lock = threading.RLock()
        self._is_closed = True
        self._followed = {}
        self._notices.forget()

    def _add(
        self,
        read: Callable[[], S],
        files: Callable[[S | None], Collection[str]],
        news: Callable[[], None],
    ) -> Observation[S]:
        number = next(self._numbers)

        def stop() -> None:
            self._followed.pop(number, None)

        observation: Observation[S] = Observation(news, stop, SYSTEM_CLOCK.now())
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._followed[number] = _Followed(observation, read, files)
                if self._thread is None:
                    thread = threading.Thread(
                        target=self._run, name="coordlock-local-observer", daemon=True
                    )
                    thread.start()
                    self._thread = thread
        if is_closed:
            observation.end(_closed(), SYSTEM_CLOCK.now())
        else:
            self._notices.wake()
        return observation

    def _run(self) -> None:
        heard: set[str] = set()
        while not self._is_closed:
            followed = list(self._followed.values())
            wanted = {file for one in followed for file in one.files()}
            for file in heard - wanted:
                self._notices.drop(file)
            heard &= wanted
            deaf = sum(not self._hears(file, heard) for file in wanted)
            # After it listens, so that nothing falls between. What was read may name more files.
            failed = sum(not self._look(one) for one in followed)
            if any(not heard.issuperset(one.files()) for one in followed if not deaf):
                continue
            pause = _PAUSE if deaf or failed else self._notices.interval
            changed = self._notices.wait(pause)
            if changed is None or not changed:
                heard.clear()  # a file may have been removed and made again
            else:
                heard.difference_update(changed)
        self._notices.close()

    def _hears(self, file: str, heard: set[str]) -> bool:
        """Whether notices of ``file`` are ordered."""
        if file in heard:
            return True
        try:
            if not file.startswith(self._directory.sessions):
                os.close(self._directory.open(file, os.O_RDONLY | os.O_CREAT))
            self._notices.add(file)
        except FileNotFoundError:
            pass  # its session has ended, as the next reading shows
        except OSError as error:
            log.debug("cannot watch %s: %s", file, error)
            return False
        heard.add(file)
        return True

    def _look(self, followed: _Followed) -> bool:
        """Show what is there now; whether it could be read."""
        observation = followed.observation
        try:
            found = followed.read()
        except Busy:
            return False
        except (OSError, CoordlockError) as error:
            reason = translated(error) if isinstance(error, OSError) else error
            log.debug("cannot read what is followed: %s", reason)
            observation.doubt(SYSTEM_CLOCK.now())
            return False
        view = observation.view
        if view.stale_since is not None or not _are_same(view.state, found):
            observation.show(found)
        return True


class _Followed:
    """An observation, how its state is read, and which files tell of a change."""

    def __init__(
        self,
        observation: Observation[Any],
        read: Callable[[], Any],
        files: Callable[[Any], Collection[str]],
    ) -> None:
        self.observation: Final = observation
        self.read: Final = read
        self._files = files

    def files(self) -> Collection[str]:
        return self._files(self.observation.view.state)


def _agreed(queue: Queue) -> Snapshot:
    """The queue as it was at one moment: what two readings agree on, one after the other.

    Neither tokens nor the versions of values come back, so nothing has changed in between.
    """
    found = queue.snapshot(owners=True)
    for _ in range(_READINGS):
        before, found = found, queue.snapshot(owners=True)
        if _are_same(before, found):
            return found
    raise Busy


def _are_same(one: object, other: object) -> bool:
    """Whether two states are equal, with the versions of what contenders publish."""
    return one == other and _versions(one) == _versions(other)


def _versions(state: object) -> list[int]:
    return [one.version for one in state.contenders] if isinstance(state, Snapshot) else []


def _closed() -> BackendUnavailable:
    return BackendUnavailable(SERVICE, "the client was closed")
