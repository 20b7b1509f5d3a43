"""Following data and queues: one thread per client, asleep until another process writes to it.

A message only names what may have changed, which is then read anew. A client that follows a key, a
folder or a queue subscribes to it, and then reads it; a process that changes it tells subscribers
afterwards. A queue also changes when a process dies that has a contender in it: the pipe of its
session ends.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final

from coordlock.backend import Observation, Queue
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock.runtime.process import THREAD
from coordlock.runtime.shared_file import Descriptor, close_kept
from coordlock_local.data import DataFile
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy, translated
from coordlock_local.pipes import Pipe, open_end, subscribe, unsubscribe
from coordlock_local.queue import LocalQueue

__all__ = ["Followers"]

log = Log("coordlock.local")

#: Seconds until another attempt, where something could not be read.
_RETRY_S: Final = 0.02
#: How often everything is read again, in seconds, in case a message was lost.
_INTERVAL_S: Final = 5.0
#: For the ends of how many sessions a client waits: programs may open few files. Others' deaths are
#: noticed when everything is read again.
_MOST_ENDS: Final = 64
#: How often a queue that changes is read again until two readings agree.
_READINGS: Final = 20


class _Followed:
    """A place that is followed, and how it is read."""

    def __init__(self, observation: Observation[Any], path: str, read: Callable[[], Any]) -> None:
        self.observation: Final = observation
        self.path: Final = path
        self.read: Final = read
        #: Whether it has to be read, because it has not been yet, or could not be.
        self.is_due = True

    def sessions(self) -> Collection[str]:
        """Those whose end changes it, the first in the queue first."""
        state = self.observation.view.state
        contenders = state.contenders if isinstance(state, Snapshot) else ()
        return dict.fromkeys(contender.session for contender in contenders)


class Followers:
    """The observations of one client. The thread starts with the first."""

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._data = DataFile(directory)
        self._lock = threading.RLock()
        self._id = os.urandom(16).hex()
        self._pipe = Pipe(directory, self._id)
        self._followed: dict[object, _Followed] = {}
        #: The pipes of sessions that have contenders in what is followed; None for one that ended.
        self._ends: dict[str, Descriptor | None] = {}
        self._thread: threading.Thread | None = None
        #: Whether it was closed in its own thread, which closes the pipe then.
        self._ends_itself = self._is_closed = False

    def follow(self, place: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        """See `Backend.follow`."""
        if isinstance(place, str):
            return self._add(self._directory.change(place), lambda: self._data.read(place), news)
        queue = LocalQueue(self._directory, place.name)
        path = f"{self._directory.observed}/{os.path.basename(queue.path)}"
        return self._add(path, lambda: _agreed(queue), news)

    def close(self) -> None:
        """End all observations and the thread."""
        with self._lock:
            if self._is_closed:
                return
            self._ends_itself = self._thread is threading.current_thread()
            self._is_closed = True
            thread, left = self._thread, list(self._followed.values())
        for followed in left:
            followed.observation.end(_closed(), self._clock.now())
        if thread is threading.current_thread():
            return  # it closes the pipe
        if thread is not None and self._pipe.wake():
            thread.join()
        self._pipe.close()

    def _add(
        self, path: str, read: Callable[[], Any], news: Callable[[], None]
    ) -> Observation[Any]:
        def stop() -> None:
            self._followed.pop(observation, None)

        observation: Observation[Any] = Observation(news, stop, self._clock.now())
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._followed[observation] = _Followed(observation, path, read)
                if self._thread is None:
                    thread = threading.Thread(
                        target=self._run, name="coordlock-local-observer", daemon=True
                    )
                    thread.start()
                    self._thread = thread
        if is_closed:
            observation.end(_closed(), self._clock.now())
        else:
            self._pipe.wake()
        return observation

    # The thread

    def _run(self) -> None:
        THREAD.must_not_wait = True
        subscribed: set[str] = set()
        reread = 0.0  # when everything is to be read again
        while not self._is_closed:
            followed = list(self._followed.values())
            if time.monotonic() >= reread:
                reread = time.monotonic() + _INTERVAL_S
                subscribed.clear()  # somebody may have removed it
                _read_again(followed)
            self._subscribe(subscribed, {place.path for place in followed})
            # After it has subscribed, so that nothing falls between.
            are_read = [self._is_read(place) for place in followed if place.is_due]
            ends = self._open_ends(followed)
            pause = max(0.0, reread - time.monotonic())
            try:
                timeout = pause if all(are_read) else min(pause, _RETRY_S)
                names, ended = self._pipe.read(timeout, ends)
            except OSError:  # the program has closed the pipe
                time.sleep(_RETRY_S)
                names, ended = None, set()
            for number in ended:
                self._end(ends[number])
            _read_again(
                place
                for place in followed
                if names is None
                or os.path.basename(place.path) in names
                or any(ends[number] in place.sessions() for number in ended)
            )
        self._subscribe(subscribed, set())
        for session in self._ends:
            self._end(session)
        if self._ends_itself:
            self._pipe.close()

    def _subscribe(self, subscribed: set[str], paths: set[str]) -> None:
        """Be ``subscribed`` to ``paths`` and nothing else."""
        for path in subscribed - paths:
            unsubscribe(path, self._id)
            subscribed.discard(path)
        for path in paths - subscribed:
            with suppress(OSError):  # then it is read now and then
                subscribe(self._directory, path, self._id)
                subscribed.add(path)

    def _is_read(self, place: _Followed) -> bool:
        """Read ``place``, until the ends of all sessions in it would be seen; whether it could."""
        while self._look(place):
            sessions = place.sessions()
            new = [session for session in sessions if session not in self._ends]
            new = new[: max(0, _MOST_ENDS - len(self._ends))]
            for session in new:
                self._ends[session] = open_end(self._directory, session)
            if not new:
                # A process's pipe ends an instant before its contenders are gone.
                place.is_due = any(
                    end is None for session, end in self._ends.items() if session in sessions
                )
                break
        return not place.is_due

    def _open_ends(self, followed: list[_Followed]) -> dict[int, str]:
        """The sessions whose ends are waited for, by descriptor; the others' are closed."""
        needed = {session for place in followed for session in place.sessions()}
        for session in self._ends.keys() - needed:
            self._end(session)
            del self._ends[session]
        ends = self._ends.items()
        return {end.number: session for session, end in ends if end is not None}

    def _end(self, session: str) -> None:
        if (end := self._ends[session]) is not None:
            self._ends[session] = None
            close_kept(end)

    def _look(self, place: _Followed) -> bool:
        """Show what is there now; whether it could be read."""
        observation = place.observation
        try:
            found = place.read()
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


def _read_again(places: Iterable[_Followed]) -> None:
    for place in places:
        place.is_due = True


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
