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
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Final

from coordlock.backend import Observation, Queue
from coordlock.backend.observers import Observers
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import Clock
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import Promise
from coordlock.runtime.shared_file import Descriptor, close_kept
from coordlock_local.data import DataFile
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy, translated
from coordlock_local.pipes import Pipe, open_end, subscribe, unsubscribe
from coordlock_local.queue import LocalQueue

__all__ = ["Followers"]

#: Seconds until another attempt, where something could not be read.
_RETRY_S: Final = 0.02
#: How often everything is read again, in seconds, in case a message was lost.
_INTERVAL_S: Final = 5.0
#: For the ends of how many sessions a client waits: programs may open few files. Others' deaths are
#: noticed when everything is read again.
_MAX_ENDS: Final = 64
#: How often a queue is read again because a session in it has no pipe, or one that has ended: that
#: ends an instant before the process's contenders are gone.
_MAX_REREADS: Final = 20
#: How often a queue that changes is read again until two readings agree.
_MAX_READINGS: Final = 20


class Followers:
    """The observations of one client. The thread starts with the first, and reads all places.

    A place is known by the path of the directory of those that have subscribed to it.
    """

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._data = DataFile(directory)
        self._lock = threading.RLock()
        self._observers = Observers(self, clock, self._lock)
        self._id = os.urandom(16).hex()
        self._pipe = Pipe(directory, self._id)
        #: The pipes of sessions that have contenders in what is followed; in place of one that
        #: ended, or could not be opened, how often to read again.
        self._ends: dict[str, Descriptor | int] = {}
        #: What the thread does next, and what it tries again after a while.
        self._tasks: deque[Callable[[], object]] = deque()
        self._retries: list[Callable[[], object]] = []
        self._thread: threading.Thread | None = None
        #: Whether it was closed in its own thread, which closes the pipe then.
        self._ends_itself = self._is_closed = False

    def follow(self, place: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        """See `Backend.follow`."""
        if isinstance(place, str):
            path = self._directory.change(place)
            read: Callable[[], Any] = partial(self._data.read, place)
        else:
            queue = LocalQueue(self._directory, place.name)
            path = self._directory.observers(os.path.basename(queue.path))
            read = partial(_agreed, queue)

        def reading() -> Promise[Any]:
            promise: Promise[Any] = Promise()
            self._do(partial(self._read, path, read, promise))
            return promise

        return self._observers.observe(path, reading, news)

    def close(self) -> None:
        """End all observations and the thread."""
        self._observers.close(BackendUnavailable(SERVICE, "the client was closed"))
        with self._lock:
            thread = self._thread
            self._ends_itself |= thread is threading.current_thread()
            self._is_closed = True
        if thread is threading.current_thread():
            return  # it closes the pipe
        if thread is not None and self._pipe.wake():
            thread.join()
        self._pipe.close()

    # See `Reporter`

    def report(self, path: str) -> bool:
        if self._thread is None:
            thread = threading.Thread(
                target=self._run, name="coordlock-local-observer", daemon=True
            )
            thread.start()
            self._thread = thread
        self._do(partial(self._begin, path))
        return False

    def unreport(self, path: str) -> None:
        self._do(partial(self._finish, path))

    def pause(self) -> Promise[None]:
        promise: Promise[None] = Promise()
        self._retries.append(partial(promise.resolve, None))
        return promise

    # The thread

    def _do(self, task: Callable[[], object]) -> None:
        self._tasks.append(task)
        if threading.current_thread() is not self._thread:
            self._pipe.wake()

    def _run(self) -> None:
        THREAD.must_not_wait = True
        reread = time.monotonic() + _INTERVAL_S  # when everything is to be read again
        while not self._is_closed:
            if time.monotonic() >= reread:
                reread = time.monotonic() + _INTERVAL_S
                for path in self._observers.places():
                    self._begin(path)  # somebody may have removed the subscription
            while self._tasks:
                self._tasks.popleft()()
            ends = self._open_ends()
            pause = max(0.0, reread - time.monotonic())
            try:
                timeout = min(pause, _RETRY_S) if self._retries else pause
                names, ended = self._pipe.read(timeout, ends)
            except OSError:  # the program has closed the pipe
                time.sleep(_RETRY_S)
                names, ended = None, set()
            self._tasks.extend(self._retries)
            self._retries.clear()
            for number in ended:
                self._end(ends[number])
            dead = {ends[number] for number in ended}
            for path in self._observers.places():
                is_named = names is None or os.path.basename(path) in names
                if is_named or not dead.isdisjoint(self._sessions(path)):
                    self._observers.changed(path)
        while self._tasks:  # the subscriptions end
            self._tasks.popleft()()
        for session in self._ends:
            self._end(session)
        if self._ends_itself:
            self._pipe.close()

    def _begin(self, path: str) -> None:
        with suppress(OSError):  # then it is read now and then
            subscribe(self._directory, path, self._id)
        self._observers.live(path)  # after it has subscribed, so that nothing falls between

    def _finish(self, path: str) -> None:
        if path not in self._observers.places():
            unsubscribe(path, self._id)

    def _read(self, path: str, read: Callable[[], Any], answer: Promise[Any]) -> None:
        """Answer with what ``read`` finds once the ends of all sessions in it would be seen."""
        try:
            found = read()
            while self._open_new_ends(found):
                found = read()
        except Busy:
            self._retries.append(partial(self._read, path, read, answer))
        except (OSError, CoordlockError) as error:
            reason = translated(error).reason if isinstance(error, OSError) else str(error)
            answer.fail(BackendUnavailable(SERVICE, reason))
        else:
            answer.resolve(found)
            left = {one: self._ends.get(one) for one in self._sessions(path)}
            ended = {
                one: count - 1 for one, count in left.items() if isinstance(count, int) and count
            }
            if ended:
                self._ends |= ended
                self._retries.append(partial(self._observers.changed, path))

    def _open_new_ends(self, state: object) -> bool:
        """Open the pipes of sessions that are new in ``state``; whether there are any."""
        new = [session for session in _sessions(state) if session not in self._ends]
        new = new[: max(0, _MAX_ENDS - len(self._ends))]
        for session in new:
            self._ends[session] = open_end(self._directory, session) or _MAX_REREADS
        return bool(new)

    def _sessions(self, path: str) -> Collection[str]:
        return _sessions(self._observers.state(path))

    def _open_ends(self) -> dict[int, str]:
        """The sessions whose ends are waited for, by descriptor; the others' are closed."""
        needed = {one for path in self._observers.places() for one in self._sessions(path)}
        for session in self._ends.keys() - needed:
            self._end(session)
            del self._ends[session]
        ends = self._ends.items()
        return {end.number: session for session, end in ends if not isinstance(end, int)}

    def _end(self, session: str) -> None:
        if not isinstance(end := self._ends[session], int):
            self._ends[session] = _MAX_REREADS
            close_kept(end)


def _sessions(state: object) -> Collection[str]:
    """Those whose end changes ``state``, the first in the queue first."""
    contenders = state.contenders if isinstance(state, Snapshot) else ()
    return dict.fromkeys(contender.session for contender in contenders)


def _agreed(queue: LocalQueue) -> Snapshot:
    """The queue as it was at one moment: what two readings agree on, one after the other.

    Neither tokens nor the versions of values come back, so nothing has changed in between.
    """
    found = queue.snapshot(owners=True)
    for _ in range(_MAX_READINGS):
        before, found = found, queue.snapshot(owners=True)
        if _are_same(before, found):
            return found
    raise Busy


def _are_same(one: object, other: object) -> bool:
    """Whether two states are equal, with the versions of what contenders publish."""
    return one == other and _versions(one) == _versions(other)


def _versions(state: object) -> list[int]:
    return [one.version for one in state.contenders] if isinstance(state, Snapshot) else []
