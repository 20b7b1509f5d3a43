"""The files that tell of contenders, and the thread that receives their notices."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from coordlock.runtime.log import Log
from coordlock_local.directory import Directory
from coordlock_local.errors import translated
from coordlock_local.notices import Notices, Polling, warn

__all__ = ["Key", "Listening"]

log = Log("coordlock.local")

#: The kernel tells that a dying process's file is closed an instant before it drops the lock. A
#: watcher that finds no contender gone looks again after this many seconds, then twice as many.
_SOON: Final = 0.001
#: Looking at everything takes at most this share of one processor.
_SHARE: Final = 0.02
#: So many files stay watched that tell of nothing: the next contender often needs the same ones.
_IDLE: Final = 16

#: A contender's key, and the version of its value: a later version is reported, too. 0 for none.
Key = tuple[str, int]


class Listening:
    """Which files tell of which contenders, and the thread that receives their notices.

    Callers hold ``lock`` for all but `close`. A signal handler may raise at any line: so whether a
    file is watched is always asked of the notices, and noted nowhere else.

    Args:
        look: looks at the contenders of which these files tell, or at all; whether all had left.
        is_wanted: whether any contender is watched.
    """

    def __init__(
        self,
        directory: Directory,
        bell: str,
        lock: threading.RLock,
        source: Callable[[], Notices],
        look: Callable[[Collection[str] | None], bool],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._directory = directory
        self._bell = bell
        self._lock = lock
        self._source = source
        self._look = look
        self._is_wanted = is_wanted
        self._keys: dict[str, set[Key]] = {}
        self._idle: dict[str, None] = {}  # they told of nothing lately; the latest comes last
        #: Files of sessions that lived after they began to be watched, and have told nothing since.
        self._living: set[str] = set()
        self._notices: Notices | None = None
        self._interval = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False
        #: Whether the thread waits without a limit, as nothing is watched; and whether something
        #: was since it has begun to wait.
        self._is_idle = self._was_used = False

    def start(self) -> None:
        """Have a thread. Raises RuntimeError where none can be started."""
        if self._thread is not None:
            return
        self._notices = self._source()
        self._interval = self._notices.interval
        self._thread = threading.Thread(target=self._run, name="coordlock-local", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._notices.close()
            self._thread = self._notices = None
            raise

    def close(self) -> None:
        """Tell nothing any more, and end the thread."""
        with self._lock:
            thread = self._thread
            if not self._closed and self._notices is not None:
                self._notices.wake()  # the thread closes it when it has seen the next line
            self._closed = True
            self._keys.clear()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # The files

    def add(self, path: str, key: Key) -> bool:
        """Let ``path`` tell of ``key``; whether it was not watched before."""
        self._keys.setdefault(path, set()).add(key)
        assert self._notices is not None
        self._was_used = True
        if self._is_idle:
            self._is_idle = False
            self._notices.wake()
        if self._notices.is_watched(path):
            return False
        self._living.discard(path)
        self._watch(path)
        return True

    def drop(self, path: str, key: Key) -> None:
        """Let ``path`` tell of ``key`` no more."""
        keys = self._keys.get(path, set())
        keys.discard(key)
        if keys:
            return
        self._keys.pop(path, None)
        if path.startswith(self._directory.watched) and path != self._bell:
            self._forget(path)  # it is of one contender
            return
        self._idle.pop(path, None)
        self._idle[path] = None
        while len(self._idle) > _IDLE:
            oldest = next(iter(self._idle))
            if oldest in self._keys:
                self._idle.pop(oldest, None)
            else:
                self._forget(oldest)

    def count(self, path: str) -> int:
        """How many keys ``path`` tells of."""
        return len(self._keys.get(path, ()))

    def keys_of(self, changed: Collection[str]) -> Collection[Key]:
        """The keys of which the ``changed`` files tell."""
        self._living.difference_update(changed)
        for path in changed:
            if path not in self._keys:
                self._forget(path)
            elif path.startswith(self._directory.queues):
                self._watch(path)  # it may have been made anew
            elif path == self._bell and self._notices and not self._notices.is_watched(path):
                self._watch(path)  # somebody has removed it
        return {key for path in changed for key in self._keys.get(path, ())}

    def lives(self, path: str) -> bool:
        """Whether the kernel has reported nothing of the file ``path`` since `note_life`."""
        return path in self._living

    def note_life(self, path: str) -> None:
        """The session of the file ``path`` lives, as a look at it shows that came after `add`."""
        if path in self._keys:
            self._living.add(path)

    def forget_lives(self) -> None:
        """Notices were lost."""
        self._living.clear()

    def _forget(self, path: str) -> None:
        self._idle.pop(path, None)
        self._living.discard(path)
        if self._notices is not None:
            self._notices.drop(path)

    def _watch(self, path: str) -> None:
        if self._notices is None:
            return
        if path.startswith(self._directory.watched):
            try:
                os.close(self._directory.open(path, os.O_RDONLY | os.O_CREAT))
            except OSError as error:  # no space, or no inodes
                if self._polls():
                    log.warning("coordlock polls for departures: %s", translated(error).reason)
                return
        try:
            is_told = path != self._directory.root and not path.startswith(self._directory.queues)
            self._notices.add(path, closed=is_told)
        except FileNotFoundError:
            pass  # that the contender has left is seen in a moment
        except OSError as error:
            if self._polls():
                warn(error)

    def _polls(self) -> bool:
        """Poll from now on; whether that is new."""
        is_new = self._interval > Polling.interval
        if is_new and self._notices is not None:
            self._interval = Polling.interval
            self._notices.wake()
        return is_new

    # The thread

    def _run(self) -> None:
        source = self._notices
        assert source is not None
        looked = time.monotonic()
        pause, cost = self._interval, 0.0
        while True:
            with self._lock:
                if self._closed:
                    break
                self._is_idle = not (self._is_wanted() or self._was_used)
                self._was_used = False
                due = looked + max(min(pause, self._interval), cost / _SHARE)
                timeout = None if self._is_idle else max(0.0, due - time.monotonic())
            try:
                changed = source.wait(timeout)
            except OSError as error:  # the program has closed what it had not opened
                with self._lock:
                    is_new = self._polls()
                    source.close()
                    source = self._notices = Polling()
                if is_new:
                    warn(error)
                continue
            began = time.monotonic()
            if changed is None or began >= due:
                self._look(None)
                looked = time.monotonic()
                cost = looked - began
                pause = min(max(pause * 2, _SOON), self._interval)
            elif changed and not self._look(changed) and changed != {self._bell}:
                pause = _SOON
        source.close()
