"""Waiting for departures: one thread per client, asleep until the operating system tells."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from coordlock.model.contender import Contender
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.log import Log
from coordlock_local.errors import translated
from coordlock_local.notices import Notices, Polling
from coordlock_local.session import LocalSession, is_alive
from coordlock_local.slots import Place, stands

if TYPE_CHECKING:
    from coordlock_local import values
else:
    values = Lazily("coordlock_local.values")  # few contenders publish anything

__all__ = ["Watcher", "notices"]

log = Log("coordlock.local")

#: The kernel tells that a dying process's file is closed an instant before it drops the lock. A
#: watcher that is told and finds none gone looks again after so many seconds, then twice as many.
_SOON: Final = 0.001
#: Looking at everything takes at most this share of one processor.
_SHARE: Final = 0.02


def notices() -> Notices:
    """The best source of notices that this system has to give."""
    if sys.platform != "linux":
        return Polling()
    try:
        from coordlock_local.inotify import Inotify  # ctypes is not cheap to import

        return Inotify()
    except (ImportError, OSError) as error:
        _warn(error)
        return Polling()


def _warn(error: Exception) -> None:
    """Say why departures are polled for."""
    reason = error.strerror if isinstance(error, OSError) else error
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        log.warning("departures are polled for: %s", reason)
        return
    log.warning(
        "inotify is not available (%s), so departures are polled for; its limits are "
        "fs.inotify.max_user_instances and fs.inotify.max_user_watches",
        reason,
    )


_Departed = Callable[[bool], None]


class _Watched:
    def __init__(self, contender: Contender, paths: Sequence[str], version: int) -> None:
        self.contender: Final = contender
        self.paths: Final = paths
        #: That of the value whose change is told, too; 0 where departures alone are.
        self.version: Final = version
        #: What is called, and the contender on whose behalf.
        self.watchers: dict[object, tuple[_Departed, Sequence[Contender]]] = {}


class Watcher:
    """Watches contenders of a directory on behalf of a session.

    Files tell of one: that of its session, when its process ends or somebody evicts it; that of the
    queue, should it be removed; and one that is made here, and that the contender opens and removes
    when it leaves. The session's own contenders leave through `left`, without such a file.

    A notice only says where to look. Whether a contender has left is always read from the queue and
    the session's lock. Now and then all contenders are looked at, so no lost notice loses a
    departure.
    """

    def __init__(self, session: LocalSession, source: Callable[[], Notices] = notices) -> None:
        self._session = session
        self._directory = session.directory
        self._source = source
        self._lock = threading.RLock()
        self._watched: dict[str, _Watched] = {}
        self._files: dict[str, set[str]] = {}  # by path, the keys that it is watched for
        self._notices: Notices | None = None
        self._interval = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(
        self, contender: Contender, departed: _Departed, waiters: Sequence[Contender] = ()
    ) -> Callable[[], None]:
        """Call ``departed`` once when ``contender`` has left, also here and now; what cancels it.

        Its argument is whether ``waiters`` were in their queues then: tokens never come back, so
        they were if they are there afterwards.

        Raises RuntimeError where no thread can be started.
        """
        return self._watch(contender, departed, waiters, 0)

    def watch_value(self, contender: Contender, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed`` once when ``contender`` has left or its value another version.

        The rest is as for `watch`.
        """
        return self._watch(contender, lambda _: changed(), (), contender.version)

    def _watch(
        self,
        contender: Contender,
        departed: _Departed,
        waiters: Sequence[Contender],
        version: int,
    ) -> Callable[[], None]:
        registration = object()
        key = f"{contender.key}#{version}" if version else contender.key

        def cancel() -> None:
            with self._lock:
                watched = self._watched.get(key)
                if watched is None:
                    return
                told = watched.watchers.pop(registration, None)
                if told is not None and not watched.watchers:
                    self._watched.pop(key, None)
                    self._drop(key, watched.paths)

        with self._lock:
            if self._closed:
                return cancel
            watched = self._watched.get(key)
            is_new = watched is None
            if watched is None:
                self._start()
                watched = _Watched(contender, self._paths(contender), version)
                self._watched[key] = watched
                for path in watched.paths:
                    self._add(path, key)
            watched.watchers[registration] = departed, waiters
        # After the notices are ordered, so that nothing falls between. A later watcher of the same
        # contender is told by them.
        if is_new and self._is_over(watched, {}):
            self._tell(key)
            if contender.session != self._session.id:
                with suppress(OSError):  # made in vain: no process removes it any more
                    os.unlink(watched.paths[0])
        return cancel

    def left(self, key: str) -> None:
        """Tell that the session's own contender ``key`` has left."""
        if key in self._watched:
            self._tell(key)
        self.changed(key)

    def changed(self, key: str) -> None:
        """Tell that the session's own contender ``key`` has published something, or left."""
        with self._lock:
            found = [one for one in self._watched if one.startswith(f"{key}#")]
            over = [one for one in found if self._is_over(self._watched[one], {})]
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

    def forget(self) -> None:
        """In a forked child: its threads are gone, and one of them may have held the lock."""
        self._lock = threading.RLock()
        self._closed = True
        self._watched = {}
        self._files = {}
        if self._notices is not None:
            self._notices.forget()

    def _paths(self, contender: Contender) -> Sequence[str]:
        paths = self._directory.session(contender.session), Place.of(contender).path
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

    def _add(self, path: str, key: str) -> None:
        keys = self._files.setdefault(path, set())
        keys.add(key)
        if len(keys) > 1 or self._notices is None:
            return
        if path.startswith(self._directory.watched):
            try:
                os.close(self._directory.open(path, os.O_RDONLY | os.O_CREAT))
            except OSError as error:  # no space, or no inodes
                if self._polls():
                    log.warning("departures are polled for: %s", translated(error).reason)
                return
        try:
            self._notices.add(path, closed=not path.startswith(self._directory.queues))
        except FileNotFoundError:
            pass  # that the contender has left is seen in a moment
        except OSError as error:
            if self._polls():
                _warn(error)

    def _polls(self) -> bool:
        """Poll from now on; whether that is new."""
        is_new = self._interval > Polling.interval
        if is_new and self._notices is not None:
            self._interval = Polling.interval
            self._notices.wake()
        return is_new

    def _drop(self, key: str, paths: Sequence[str]) -> None:
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
                    _warn(error)
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
        """Tell of the contenders that have left, of all or of changed files; whether all have."""
        with self._lock:
            keys = set(self._watched)
            if changed is not None:
                keys &= {key for path in changed for key in self._files.get(path, ())}
            looked_at = {key: self._watched[key] for key in keys}
        lives: dict[str, bool] = {}
        over = [key for key, watched in looked_at.items() if self._is_over(watched, lives)]
        for key in over:
            self._tell(key)
        return len(over) == len(looked_at)

    def _is_over(self, watched: _Watched, lives: dict[str, bool]) -> bool:
        """Whether what it waits for has happened. ``lives`` remembers, for one look."""
        contender, version = watched.contender, watched.version
        if self._has_left(contender, lives):
            return True
        return 0 < version != values.version_of(self._directory, contender)

    def _has_left(self, contender: Contender, lives: dict[str, bool]) -> bool:
        """Whether it is gone, or dead. ``lives`` remembers, for one look."""
        session = contender.session
        try:
            if not stands(self._directory, Place.of(contender)):
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
            return all(stands(self._directory, Place.of(waiter)) for waiter in waiters)
        except OSError:
            return False

    def _tell(self, key: str) -> None:
        """Call all who watch the contender ``key``, those too who come meanwhile.

        Each is taken off when it has been called: what Ctrl-C ends here is told again. Of two
        threads that tell at once, both may call one, which does no harm.
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
                registration, (departed, waiters) = next(iter(watched.watchers.items()))
            try:
                departed(self._are_there(waiters))
            except Exception:
                log.exception("a watcher of %s failed", key)
            watched.watchers.pop(registration, None)
