"""The files that tell of contenders, and which thread receives their notices."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS
from coordlock.runtime.receiving import offer
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
#: Seconds for which a waiting thread receives at most, and after which it looks for its end.
_LONGEST, _SLICE = 1.0, 0.02
#: Seconds for which the watcher's thread leaves the notices to waiting threads after one has
#: received: the next one often begins soon.
_LATELY: Final = 0.05

#: A contender's key, and the version of its value: a later version is reported, too. 0 for none.
Key = tuple[str, int]


class Listening:
    """Which files tell of which contenders, and the threads that receive their notices.

    A thread that waits for a departure receives the notices itself, if it has ordered all of them:
    so it wakes sooner than through another thread. The listening's own thread leaves them alone
    meanwhile, and receives them at all other times.

    Callers hold ``lock`` for all but `receive` and `close`.

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
        self._idle: dict[str, None] = {}  # watched, and telling of nothing; the latest comes last
        #: Files of sessions that lived after they began to be watched, and have told nothing since.
        self._living: set[str] = set()
        self._notices: Notices | None = None
        self._interval = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._pid = PROCESS.id
        #: The thread that may receive; 0 for the own one.
        self._receiver = 0
        #: Until when it receives, and whether it was interrupted before it had looked.
        self._received, self._is_left = 0.0, False
        #: Until when the own thread leaves the notices alone; 0 while it receives.
        self._resting = 0.0
        self._was_used = False

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
        keys = self._keys.setdefault(path, set())
        keys.add(key)
        if len(keys) > 1:
            return False
        is_new = path not in self._idle
        self._idle.pop(path, None)
        if is_new:
            self._watch(path)
        return is_new

    def drop(self, path: str, key: Key) -> None:
        """Let ``path`` tell of ``key`` no more."""
        keys = self._keys.get(path, set())
        keys.discard(key)
        if keys:
            return
        self._keys.pop(path, None)  # it lacks the path where Ctrl-C ended `add`
        if path.startswith(self._directory.watched) and path != self._bell:
            self._forget(path)  # it is of one contender
            return
        self._idle[path] = None
        if len(self._idle) > _IDLE:
            self._forget(next(iter(self._idle)))

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
            self._notices.add(path, closed=not path.startswith(self._directory.queues))
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

    # The threads

    def serve(self, receiver: int | None) -> None:
        """See to it that a thread receives what was ordered. Without the lock.

        ``receiver`` is the thread that has ordered all, and may be about to wait; 0 if several
        have; None for a watch of an own contender, which leaves it as it is.
        """
        me, source = threading.get_ident(), self._notices
        assert source is not None
        if receiver is not None:
            self._receiver = receiver
        is_offered = receiver == me and source.is_direct and offer(self.receive, _LONGEST)
        with self._lock:
            self._was_used = True
            if receiver is not None and not is_offered:
                self._received = 0.0
                if self._resting:
                    source.wake()
            elif self._resting == math.inf:  # else it wakes by itself
                source.wake()

    def receive(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Receive notices until ``is_done``, in the thread that waits for them."""
        source, me = self._notices, threading.get_ident()
        if source is None or PROCESS.id != self._pid:
            return
        now = time.monotonic()
        until = self._received = now + seconds
        try:
            if seconds and not self._resting:
                source.wake()  # or a notice would wake both threads
            while now < until and self._receiver == me and not (self._closed or is_done()):
                if not source.is_readable(min(until - now, _SLICE)):
                    now = time.monotonic()
                    continue
                if self._receiver != me:
                    break  # another thread has ordered something
                self._is_left = True
                changed = source.read()
                if not self._look(changed) and changed != {self._bell}:
                    break  # the other thread looks again
                self._is_left = False
                now = time.monotonic()
        except OSError:
            pass  # the other thread meets it, too
        finally:
            is_over = not self._is_left and is_done()
            self._received = time.monotonic() if is_over else 0.0
            if not is_over:
                with self._lock:
                    if self._resting:
                        source.wake()

    def _run(self) -> None:
        source = self._notices
        assert source is not None
        looked = time.monotonic()
        pause, cost = self._interval, 0.0
        while True:
            with self._lock:
                if self._closed:
                    break
                now = time.monotonic()
                due = looked + max(pause, cost / _SHARE)
                if self._received + _LATELY > now:
                    rest = min(now + _LATELY, due)
                else:
                    rest = 0.0 if self._is_wanted() or self._was_used else math.inf
                self._resting, self._was_used = rest, False
            changed: Collection[str] | None = ()
            try:
                if rest:
                    source.rest(None if rest == math.inf else max(0.0, rest - now))
                else:
                    changed = source.wait(max(0.0, due - now))
            except OSError as error:  # the program has closed what it had not opened
                with self._lock:
                    is_new = self._polls()
                    source.close()
                    source = self._notices = Polling()
                if is_new:
                    warn(error)
                continue
            began = time.monotonic()
            is_left = self._is_left and began >= self._received
            if changed is None or began >= due or is_left:
                self._is_left = self._is_left and not is_left
                self._look(None)
                looked = time.monotonic()
                cost = looked - began
                pause = _SOON if is_left else min(max(pause * 2, _SOON), self._interval)
            elif changed and not self._look(changed) and changed != {self._bell}:
                pause = _SOON
        source.close()
