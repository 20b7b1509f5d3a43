"""Watching contenders, on behalf of those that wait for them to leave."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final

from coordlock.backend import Departure
from coordlock.model.contender import Contender
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS, THREAD
from coordlock.runtime.shared_file import Descriptor, close_kept
from coordlock_local import values
from coordlock_local.pipes import open_end, subscribe, unsubscribe
from coordlock_local.session import LocalSession, is_alive
from coordlock_local.slots import Slot, stands

__all__ = ["Watcher"]

log = Log("coordlock.local")

#: How often the thread looks at everything, in seconds, in case a message was lost.
_INTERVAL_S: Final = 5.0
#: A process's pipe ends an instant before the system drops its lock. A watcher that finds its
#: contender there looks again after this time, then after twice as long.
_SOON_S: Final = 0.001
#: Looking at everything takes at most this share of one processor.
_SHARE: Final = 0.02
#: So many pipes stay open that nothing is watched for: the next blocker is often one of the same.
_IDLE_ENDS: Final = 16

#: A contender's key, and the version of its value: a later version is reported, too. 0 for none.
Key = tuple[str, int]
_Watch = tuple[Callable[[Departure], None], Sequence[Contender]]


class _Watched:
    """A contender that is watched, and on behalf of which contenders."""

    def __init__(self, contender: Contender, version: int) -> None:
        self.contender: Final = contender
        self.slot: Final = Slot.of(contender)
        self.version: Final = version
        self.watches: Final[dict[object, _Watch]] = {}
        self.is_subscribed = False
        #: Whether a look has shown that none stood before it when it had left.
        self.was_first = False

    @property
    def queue(self) -> str:
        """What messages call its queue."""
        return os.path.basename(self.slot.path)


class _End:
    """A session's pipe, open to see its end; None if the session has no pipe, or it has ended."""

    def __init__(self) -> None:
        self.descriptor: Descriptor | None = None
        #: The contenders of the session that are watched.
        self.keys: Final[set[Key]] = set()

    def close(self) -> None:
        """Look for the end no more. Idempotent."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            close_kept(descriptor)


class Watcher:
    """Watches contenders of a directory on behalf of a session.

    Who leaves writes into the pipes of those that wait for it (`leave`); where the rule
    does not name this session, it subscribes. A session whose process ends takes its pipe along.
    Then this looks into the queue and at the session's lock: they alone decide. It also looks now
    and then, so no lost message loses a departure.
    """

    def __init__(self, session: LocalSession, died: Callable[[], object] = lambda: None) -> None:
        """``died`` is called, perhaps repeatedly, while other processes find ``session`` dead."""
        self._session: Final = session
        self._died = died
        self._directory: Final = session.directory
        self._lock: Final = threading.RLock()
        self._watched: dict[Key, _Watched] = {}
        self._in_queue: dict[str, set[Key]] = {}
        self._changing: set[Key] = set()  # those that are watched for changes, too
        self._ends: dict[str, _End] = {}  # by session
        #: Those for which the thread waits.
        self._polled: Collection[_End] = ()
        self._thread: threading.Thread | None = None
        #: Whether the thread waits without a limit, as nothing is watched; and whether something
        #: was since it has begun to wait.
        self._is_idle = self._was_used = False
        self._closed = False
        self._pid = PROCESS.id

    def watch(
        self,
        contender: Contender,
        on_departure: Callable[[Departure], None],
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        """Call ``on_departure`` once when ``contender`` has left, perhaps at once; what cancels it.

        In order if ``waiters`` are in their queues afterwards: tokens never come back. With
        ``changes``, it is also called when the version of the contender's value is another.

        Raises RuntimeError where no thread can be started.
        """
        watch = object()
        version = contender.version if changes else 0
        key = contender.key, version

        def cancel() -> None:
            if PROCESS.id != self._pid:  # another thread of the parent may have held the lock
                return
            with self._lock:
                watched = self._watched.get(key)
                if watched is not None and watched.watches.pop(watch, None) is not None:
                    self._drop(key, watched)

        with self._lock:
            if self._closed:
                return cancel
            self._start()
            watched = self._watched.get(key)
            if watched is None:
                watched = self._watched[key] = _Watched(contender, version)
            watched.watches[watch] = on_departure, () if changes else waiters
            self._listen(key, watched, changes or not _is_behind(waiters, watched.slot))
        # After it listens, so that nothing falls between.
        if self._is_due(watched, {}):
            self._report(key)
        return cancel

    def own_left(self, key: str) -> None:
        """Report that the session's own contender ``key`` has left."""
        if self._watched:
            self._report((key, 0))
            self.own_changed(key)

    def own_changed(self, key: str) -> None:
        """Report that the session's own contender ``key`` has published something, or left."""
        with self._lock:
            found = [watched for watched in self._changing if watched[0] == key]
        self._look_at(found)

    def close(self) -> None:
        """Call nothing any more, and end the thread."""
        with self._lock:
            thread, self._closed = self._thread, True
            for end in self._ends.values():
                end.close()
            for watched in self._watched.values():
                if watched.is_subscribed:
                    unsubscribe(self._subscription(watched), self._session.id)
            self._watched.clear()
        is_woken = thread is not None and self._session.pipe.wake()
        if thread is not None and is_woken and thread is not threading.current_thread():
            thread.join()

    # With the lock held

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="coordlock-local", daemon=True)
            thread.start()
            self._thread = thread

    def _listen(self, key: Key, watched: _Watched, subscribes: bool) -> None:
        """See to it that this hears of the departure of ``watched``."""
        session = watched.contender.session
        self._in_queue.setdefault(watched.queue, set()).add(key)
        if watched.version:
            self._changing.add(key)
        self._was_used = True
        end = self._ends.setdefault(session, _End())
        end.keys.add(key)  # first: it is not idle
        if end.descriptor is None and session != self._session.id:
            end.descriptor = open_end(self._directory, session)
        self._close_idle()
        if subscribes and not watched.is_subscribed and session != self._session.id:
            watched.is_subscribed = True
            with suppress(OSError):  # no space: it looks now and then
                subscribe(self._directory, self._subscription(watched), self._session.id)
        if self._is_idle or (end.descriptor is not None and end not in self._polled):
            self._is_idle = False
            self._session.pipe.wake()

    def _subscription(self, watched: _Watched) -> str:
        return self._directory.watch(watched.contender.session, watched.contender.id)

    def _close_idle(self) -> None:
        for session, end in list(self._ends.items()):
            if len(self._ends) > _IDLE_ENDS and not end.keys:
                del self._ends[session]
                end.close()

    def _drop(self, key: Key, watched: _Watched) -> None:
        """Watch it no more, if there is no watch left."""
        if watched.watches:
            return
        session = watched.contender.session
        if (end := self._ends.get(session)) is not None:
            end.keys.discard(key)
        keys = self._in_queue.get(watched.queue, set())
        keys.discard(key)
        if not keys:
            self._in_queue.pop(watched.queue, None)
        if watched.is_subscribed:
            unsubscribe(self._subscription(watched), self._session.id)
        self._changing.discard(key)
        self._watched.pop(key, None)

    # The thread

    def _run(self) -> None:
        THREAD.must_not_wait = True
        looked, pause, cost = time.monotonic(), _INTERVAL_S, 0.0
        while True:
            with self._lock:
                if self._closed:
                    return
                open_ends = {
                    end.descriptor.number: end
                    for end in self._ends.values()
                    if end.descriptor is not None
                }
                self._polled = frozenset(open_ends.values())
                self._is_idle = not (self._watched or self._was_used)
                self._was_used = False
                due = looked + max(min(pause, _INTERVAL_S), cost / _SHARE)
                timeout = None if self._is_idle else max(0.0, due - time.monotonic())
            try:
                names, ended = self._session.pipe.read(timeout, open_ends)
            except OSError:  # the program has closed it, and so the session's file
                self._look(None)
                return
            began = time.monotonic()
            dead = [open_ends[number] for number in ended]
            for end in dead:
                end.close()
            if names is None or began >= due:
                self._look(None)
                looked = time.monotonic()
                cost = looked - began
                pause = _SOON_S if dead else min(max(pause * 2, _SOON_S), _INTERVAL_S)
                continue
            keys = {key for end in dead for key in end.keys}
            keys.update(*map(self._named, names))
            if keys and not self._look(keys) and dead:
                pause = _SOON_S

    def _named(self, queue: str) -> Collection[Key]:
        return tuple(self._in_queue.get(queue, ()))

    # Looking

    def _look(self, keys: Collection[Key] | None) -> bool:
        """Look at ``keys``, or at all contenders, and report; whether all were due."""
        if not self._session.is_alive():
            self._died()
        return self._look_at(list(self._watched) if keys is None else keys)

    def _look_at(self, keys: Iterable[Key]) -> bool:
        with self._lock:
            looked_at = {key: self._watched[key] for key in keys if key in self._watched}
        lives: dict[str, bool] = {}
        due = [key for key, watched in looked_at.items() if self._is_due(watched, lives)]
        for key in due:
            self._report(key)
        return len(due) == len(looked_at)

    def _is_due(self, watched: _Watched, lives: dict[str, bool]) -> bool:
        """Whether to report it. ``lives`` remembers which sessions live, for one look."""
        if self._has_left(watched, lives):
            return True
        return 0 < watched.version != values.version_of(self._directory, watched.contender)

    def _has_left(self, watched: _Watched, lives: dict[str, bool]) -> bool:
        """Whether the contender is gone, or its session is dead."""
        session, slot = watched.contender.session, watched.slot
        try:
            if session == self._session.id:
                return not (stands(self._directory, slot) and self._session.is_alive())
            before = self._session.before(slot.path, slot.token + 1)
            if slot.token not in before:
                watched.was_first = not before
                return True
            if session not in lives:
                lives[session] = is_alive(self._directory, session)
        except OSError as error:
            log.debug("cannot look at %s: %s", watched.contender.key, error)
            return False
        return not lives[session]

    def _are_there(self, waiters: Sequence[Contender]) -> bool:
        if not waiters or not self._session.is_alive():
            return False
        try:
            return all(stands(self._directory, Slot.of(waiter)) for waiter in waiters)
        except OSError:
            return False

    def _report(self, key: Key) -> None:
        """Call all watches of ``key``, and those that are added meanwhile.

        Each is removed when it has been called, so what Ctrl-C ends here is repeated. If two
        threads report at once, both may call the same one, which does no harm.
        """
        while True:
            with self._lock:
                watched = self._watched.get(key)
                if watched is None:
                    return
                if not watched.watches:
                    self._drop(key, watched)
                    return
                watch, (on_departure, waiters) = next(iter(watched.watches.items()))
            departure = Departure.UNORDERED
            if self._are_there(waiters):
                departure = Departure.FIRST if watched.was_first else Departure.IN_ORDER
            try:
                on_departure(departure)
            except Exception:
                log.exception("a watch of %s failed", key[0])
            watched.watches.pop(watch, None)


def _is_behind(waiters: Iterable[Contender], slot: Slot) -> bool:
    """Whether one of ``waiters`` stands behind ``slot``, so that who leaves it tells them."""
    places = map(Slot.of, waiters)
    return any(place.path == slot.path and place.token > slot.token for place in places)
