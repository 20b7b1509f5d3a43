"""Following data and queues: one thread per client, asleep until the system tells of a change.

A notice says only that something may have changed; everything that follows the file is read anew
then. Each key or folder that is followed has a file, which its followers make and remove (see
`data`). A queue is followed by its own file, which tells of its contenders, and by those of their
sessions, which tell of the death of their processes. A process that changes something closes one of
these files afterwards.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, TypeVar

from coordlock.backend import Listing, Observation, Queue
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock_local.data import DataFile
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy, translated
from coordlock_local.notices import Notices, Polling, notices
from coordlock_local.queue import LocalQueue

__all__ = ["Followers"]

log = Log("coordlock.local")

#: Seconds until another attempt, where something could not be read.
_PAUSE: Final = 0.02
#: How often a queue that changes is read again until two readings agree.
_READINGS: Final = 20

S = TypeVar("S", Listing, Snapshot)


class Followers:
    """The observations of one client. The thread starts with the first."""

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._data = DataFile(directory)
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._followed: dict[int, _Followed] = {}
        self._notices: Notices = notices()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def follow(self, place: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        """See `Backend.follow`."""
        if isinstance(place, str):
            changes = self._directory.change(place)
            return self._add(lambda: self._data.read(place), lambda _: (changes,), news)
        queue = LocalQueue(self._directory, place.name)

        def files(state: Snapshot | None) -> Collection[str]:
            contenders = () if state is None else state.contenders
            sessions = {self._directory.session(one.session) for one in contenders}
            return (queue.path, *sessions)

        return self._add(lambda: _agreed(queue), files, news)

    def close(self) -> None:
        """End all observations and the thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            thread, left = self._thread, list(self._followed.values())
        for one in left:
            one.observation.end(_closed(), self._clock.now())
        if thread is None:
            self._notices.close()
            return
        self._notices.wake()
        if thread is not threading.current_thread():
            thread.join()

    def _add(
        self,
        read: Callable[[], S],
        files: Callable[[S | None], Collection[str]],
        news: Callable[[], None],
    ) -> Observation[S]:
        number = next(self._numbers)

        def stop() -> None:
            self._followed.pop(number, None)

        observation: Observation[S] = Observation(news, stop, self._clock.now())
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
            observation.end(_closed(), self._clock.now())
        else:
            self._notices.wake()
        return observation

    def _run(self) -> None:
        heard: set[str] = set()  # notices of these are ordered, and none has come
        wanted: set[str] = set()
        check = 0.0  # when all is to be read again, whatever was heard
        while not self._is_closed:
            if (now := time.monotonic()) >= check:
                heard.clear()  # a file may have been removed and made again
                check = now + self._notices.interval
            followed = list(self._followed.values())
            before, wanted = wanted, {file for one in followed for file in one.files()}
            self._drop(before - wanted)
            heard &= wanted
            due = [one for one in followed if one.is_due or not heard.issuperset(one.files())]
            deaf = sum(not self._hears(file, heard) for file in wanted)
            # After it listens, so that nothing falls between. What was read may name more files.
            for one in due:
                one.is_due = not self._look(one)
            if any(not heard.issuperset(one.files()) for one in followed if not deaf):
                continue
            failed = any(one.is_due for one in due)
            pause = max(0.0, check - time.monotonic())
            try:
                changed = self._notices.wait(min(pause, _PAUSE) if deaf or failed else pause)
            except OSError as error:  # the program has closed what it had not opened
                log.warning("inotify failed, so coordlock polls for changes: %s", error.strerror)
                self._notices.close()
                self._notices = Polling()
                changed = None
            if changed is None:
                check = 0.0
            else:
                heard.difference_update(changed)
        self._drop(wanted)
        self._notices.close()

    def _drop(self, files: Collection[str]) -> None:
        """Listen to ``files`` no more."""
        for file in files:
            self._notices.drop(file)
            if file.startswith(self._directory.changes):
                with suppress(OSError):  # others that follow it hear this, and make it again
                    os.unlink(file)

    def _hears(self, file: str, heard: set[str]) -> bool:
        """Whether notices of ``file`` are ordered."""
        if file in heard:
            return True
        is_session = file.startswith(self._directory.sessions)
        try:
            if not is_session:
                os.close(self._directory.open(file, os.O_RDONLY | os.O_CREAT))
            self._notices.add(file)
        except OSError as error:
            # A session that has no file has ended, as the next reading shows. Another process has
            # removed any other file just now, which is made again then.
            if not (is_session and isinstance(error, FileNotFoundError)):
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
            observation.doubt(self._clock.now())
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
        #: Whether it has to be read, because it has not been yet, or could not be.
        self.is_due = True

    def files(self) -> Collection[str]:
        return self._files(self.observation.view.state)


def _agreed(queue: LocalQueue) -> Snapshot:
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
