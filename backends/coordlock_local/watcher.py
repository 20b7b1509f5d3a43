"""Watching contenders: one thread per client, asleep until the operating system tells it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

from coordlock.model.contender import Contender
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS
from coordlock_local import values
from coordlock_local.errors import translated
from coordlock_local.notices import Notices, Polling, notices, warn
from coordlock_local.session import LocalSession, is_alive
from coordlock_local.slots import Slot

__all__ = ["Watcher"]

log = Log("coordlock.local")

#: The kernel tells that a dying process's file is closed an instant before it drops the lock. A
#: watcher that is told and finds none gone looks again after so many seconds, then twice as many.
_SOON: Final = 0.001
#: Looking at everything takes at most this share of one processor.
_SHARE: Final = 0.02

_Told = Callable[[bool], None]
#: A contender's key, and the version of the value whose change is told too, or 0.
_Key = tuple[str, int]


class _Watched:
    """A contender that is watched, and by whom."""

    def __init__(self, contender: Contender, version: int, paths: Sequence[str]) -> None:
        self.contender: Final = contender
        self.version: Final = version
        self.paths: Final = paths
        #: What is called, and the contenders on whose behalf.
        self.watchers: dict[object, tuple[_Told, Sequence[Contender]]] = {}


class Watcher:
    """Watches contenders of a directory on behalf of a session.

    Three files tell of a contender: its session's file, when its process ends or another process
    evicts it; the queue's file, should it be removed; and a file that the watcher makes, and that
    the contender's process opens and removes when the contender leaves. The session's own
    contenders leave through `own_left`, without such a file.

    A notice only says where to look. The watcher always reads from the queue and the session's lock
    whether a contender has left. Now and then it looks at all contenders, so no lost notice loses a
    departure.
    """

    def __init__(self, session: LocalSession, source: Callable[[], Notices] = notices) -> None:
        self._session = session
        self._directory = session.directory
        self._source = source
        self._lock = threading.RLock()
        self._watched: dict[_Key, _Watched] = {}
        self._files: dict[str, set[_Key]] = {}  # by path, the keys of what it tells of
        self._notices: Notices | None = None
        self._interval = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._pid = PROCESS.id

    def watch(
        self,
        contender: Contender,
        told: _Told,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        """Call ``told`` once when ``contender`` has left, perhaps here and now; what cancels it.

        Its argument is whether ``waiters`` were in their queues then: tokens never come back, so
        they were if they are there afterwards. With ``changes``, it is also called when the version
        of the contender's value is another.

        Raises RuntimeError where no thread can be started.
        """
        registration = object()
        version = contender.version if changes else 0
        key = contender.key, version

        def cancel() -> None:
            if PROCESS.id != self._pid:  # another thread of the parent may have held the lock
                return
            with self._lock:
                watched = self._watched.get(key)
                if watched is None:
                    return
                found = watched.watchers.pop(registration, None)
                if found is not None and not watched.watchers:
                    self._watched.pop(key, None)
                    self._drop(key, watched.paths)

        with self._lock:
            if self._closed:
                return cancel
            watched = self._watched.get(key)
            is_new = watched is None
            if watched is None:
                self._start()
                watched = _Watched(contender, version, self._paths(contender))
                self._watched[key] = watched
                for path in watched.paths:
                    self._add(path, key)
            watched.watchers[registration] = told, () if changes else waiters
        # After the notices are ordered, so that nothing falls between. The notices serve later
        # watchers of the same contender.
        if is_new and self._is_due(watched, {}):
            self._tell(key)
            if contender.session != self._session.id:
                with suppress(OSError):  # made in vain: no process removes it any more
                    os.unlink(watched.paths[0])
        return cancel

    def own_left(self, key: str) -> None:
        """Tell that the session's own contender ``key`` has left."""
        if self._watched:
            self._tell((key, 0))
            self.own_changed(key)

    def own_changed(self, key: str) -> None:
        """Tell that the session's own contender ``key`` has published something, or left."""
        with self._lock:
            found = [one for one in self._watched if one[0] == key and one[1]]
            over = [one for one in found if self._is_due(self._watched[one], {})]
        for one in over:
            self._tell(one)

    def close(self) -> None:
        """Call nothing any more, and end the thread."""
        with self._lock:
            thread = self._thread
            if not self._closed and self._notices is not None:
                self._notices.wake()  # the thread closes it when it has seen the next line
            self._closed = True
            self._watched.clear()
            self._files.clear()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _paths(self, contender: Contender) -> Sequence[str]:
        paths = self._directory.session(contender.session), Slot.of(contender).path
        if contender.session == self._session.id:
            return paths
        return self._directory.watch(contender.session, contender.id), *paths

    def _start(self) -> None:
        if self._thread is None:
            self._notices = self._source()
            self._interval = self._notices.interval
            self._thread = threading.Thread(target=self._run, name="coordlock-local", daemon=True)
            try:
                self._thread.start()
            except BaseException:
                self._notices.close()
                self._thread = self._notices = None
                raise
        elif not self._watched and self._notices is not None:
            self._notices.wake()  # it sleeps without a bound

    def _add(self, path: str, key: _Key) -> None:
        keys = self._files.setdefault(path, set())
        keys.add(key)
        if len(keys) > 1 or self._notices is None:
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

    def _drop(self, key: _Key, paths: Sequence[str]) -> None:
        for path in paths:
            keys = self._files.get(path, set())
            keys.discard(key)
            if not keys:
                self._files.pop(path, None)  # a watch that was interrupted has not got so far
                if self._notices is not None:
                    self._notices.drop(path)

    def _run(self) -> None:
        source = self._notices
        assert source is not None
        looked = time.monotonic()
        pause, cost = self._interval, 0.0
        while True:
            with self._lock:
                if self._closed:
                    break
                due = looked + max(pause, cost / _SHARE)
                timeout = max(0.0, due - time.monotonic()) if self._watched else None
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
            elif changed and not self._look(changed):
                pause = _SOON
        source.close()

    def _look(self, changed: Collection[str] | None) -> bool:
        """Look at all contenders, or those of ``changed`` files, and tell; whether all were due."""
        with self._lock:
            keys = set(self._watched)
            if changed is not None:
                keys &= {key for path in changed for key in self._files.get(path, ())}
            looked_at = {key: self._watched[key] for key in keys}
        lives: dict[str, bool] = {}
        over = [key for key, watched in looked_at.items() if self._is_due(watched, lives)]
        for key in over:
            self._tell(key)
        return len(over) == len(looked_at)

    def _is_due(self, watched: _Watched, lives: dict[str, bool]) -> bool:
        """Whether to tell its watchers. ``lives`` remembers which sessions live, for one look."""
        if self._has_left(watched.contender, lives):
            return True
        return 0 < watched.version != values.version_of(self._directory, watched.contender)

    def _has_left(self, contender: Contender, lives: dict[str, bool]) -> bool:
        """Whether ``contender`` is gone, or its session is dead."""
        session = contender.session
        try:
            if not self._session.stands(Slot.of(contender)):
                return True
            if session == self._session.id:
                return not self._session.is_alive()
            if session not in lives:
                lives[session] = is_alive(self._directory, session)
        except OSError as error:
            log.debug("cannot look at %s: %s", contender.key, error)
            return False
        return not lives[session]

    def _are_there(self, waiters: Sequence[Contender]) -> bool:
        if not waiters or not self._session.is_alive():
            return False
        try:
            return all(self._session.stands(Slot.of(waiter)) for waiter in waiters)
        except OSError:
            return False

    def _tell(self, key: _Key) -> None:
        """Call all watchers of ``key``, and those that are added meanwhile.

        Each is removed when it has been called, so what Ctrl-C ends here is told again. If two
        threads tell at once, both may call the same one, which does no harm.
        """
        while True:
            with self._lock:
                watched = self._watched.get(key)
                if watched is None:
                    return
                if not watched.watchers:
                    del self._watched[key]
                    self._drop(key, watched.paths)
                    return
                registration, (told, waiters) = next(iter(watched.watchers.items()))
            try:
                told(self._are_there(waiters))
            except Exception:
                log.exception("a watcher of %s failed", key[0])
            watched.watchers.pop(registration, None)
