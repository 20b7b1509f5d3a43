"""Watching contenders, on behalf of those that wait for them to leave."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from coordlock.backend import Departure
from coordlock.backend.watch_table import Watched, WatchTable
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
_DEATH_RECHECK_S: Final = 0.001
#: Looking at everything takes at most this share of one processor.
_LOOK_SHARE: Final = 0.02
#: So many pipes stay open that nothing is watched for: the next blocker is often one of the same.
_MAX_IDLE_ENDS: Final = 16
_LONGEST_JOIN_S: Final = 1.0


class _Watched(Watched):
    """A contender that is watched, under its key."""

    __slots__ = ("contender", "queue", "slot", "was_first")

    def __init__(self, contender: Contender) -> None:
        super().__init__(contender.key)
        self.contender = contender
        self.slot = Slot.of(contender)
        #: What messages call its queue.
        self.queue = os.path.basename(self.slot.path)
        #: Whether a look has shown that none stood before it when it had left.
        self.was_first = False


class _End:
    """A session's pipe, open to see its end; None if the session has no pipe, or it has ended."""

    def __init__(self) -> None:
        self.descriptor: Descriptor | None = None
        #: The contenders of the session that are watched.
        self.watched: Final[set[_Watched]] = set()

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
        self._table: WatchTable[_Watched] = WatchTable(self._lock, self._unwatch)
        self._in_queue: dict[str, set[_Watched]] = {}
        #: The queues of which all changes are reported.
        self._subscribed: set[str] = set()
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
        wanted = _Watched(contender)

        def cancel() -> None:
            if PROCESS.id == self._pid:  # else another thread of the parent may have held the lock
                watch()

        with self._lock:
            if self._closed:
                return lambda: None
            self._start()
            version = contender.version if changes else 0
            watched, watch = self._table.add(wanted, on_departure, waiters, version)
            self._listen(watched, changes or not _is_behind(waiters, watched.slot))
        # After it listens, so that nothing falls between.
        self._look_at([watched])
        return cancel

    def own_left(self, key: str) -> None:
        """Report that the session's own contender ``key`` has left."""
        if (watched := self._table.watched.get(key)) is not None:
            self._report(watched)

    def own_changed(self, key: str) -> None:
        """Report that the session's own contender ``key`` has published something."""
        if (watched := self._table.watched.get(key)) is not None:
            self._look_at([watched])

    def stop(self) -> bool:
        """Call nothing any more, and let the thread end; whether it will."""
        with self._lock:
            self._closed = True
            for end in self._ends.values():
                end.close()
            for queue in tuple(self._subscribed):
                self._unsubscribe(queue)
            self._table.clear()
        return self._session.pipe.wake()

    def close(self) -> None:
        """Call nothing any more, and end the thread."""
        thread = self._thread
        if self.stop() and thread is not None and thread is not threading.current_thread():
            # It may wait for the lock, and a signal handler that closes the client for the thread.
            thread.join(_LONGEST_JOIN_S)

    # With the lock held

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="coordlock-local", daemon=True)
            thread.start()
            self._thread = thread

    def _listen(self, watched: _Watched, subscribes: bool) -> None:
        """See to it that this hears of the departure of ``watched``."""
        session = watched.contender.session
        self._in_queue.setdefault(watched.queue, set()).add(watched)
        self._was_used = True
        end = self._ends.setdefault(session, _End())
        end.watched.add(watched)  # first: it is not idle
        if end.descriptor is None and session != self._session.id:
            end.descriptor = open_end(self._directory, session)
        self._close_idle()
        if subscribes and watched.queue not in self._subscribed and session != self._session.id:
            self._subscribed.add(watched.queue)
            with suppress(OSError):  # no space: it looks now and then
                subscribe(
                    self._directory, self._directory.observers(watched.queue), self._session.id
                )
        if self._is_idle or (end.descriptor is not None and end not in self._polled):
            self._is_idle = False
            self._session.pipe.wake()

    def _close_idle(self) -> None:
        for session, end in list(self._ends.items()):
            if len(self._ends) > _MAX_IDLE_ENDS and not end.watched:
                del self._ends[session]
                end.close()

    def _unwatch(self, watched: _Watched) -> None:
        if (end := self._ends.get(watched.contender.session)) is not None:
            end.watched.discard(watched)
        beside = self._in_queue.get(watched.queue, set())
        beside.discard(watched)
        if not beside:
            self._in_queue.pop(watched.queue, None)
            self._unsubscribe(watched.queue)

    def _unsubscribe(self, queue: str) -> None:
        if queue in self._subscribed:
            self._subscribed.discard(queue)
            unsubscribe(self._directory.observers(queue), self._session.id)

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
                self._is_idle = not (self._table.watched or self._was_used)
                self._was_used = False
                due = looked + min(max(pause, cost / _LOOK_SHARE), _INTERVAL_S)
                timeout = None if self._is_idle else max(0.0, due - time.monotonic())
            try:
                names, ended = self._session.pipe.read(timeout, open_ends)
            except OSError:  # the program has closed it, and so the session's file
                self._look_at_all()
                return
            began = time.monotonic()
            dead = [open_ends[number] for number in ended]
            for end in dead:
                end.close()
            if names is None or began >= due:
                self._look_at_all()
                looked = time.monotonic()
                cost = looked - began
                pause = (
                    _DEATH_RECHECK_S if dead else min(max(pause * 2, _DEATH_RECHECK_S), _INTERVAL_S)
                )
                continue
            with self._lock:
                seen = {watched for end in dead for watched in end.watched}
                seen.update(*(self._in_queue.get(name, ()) for name in names))
            if seen and not self._look(seen) and dead:
                pause = _DEATH_RECHECK_S

    # Looking

    def _look_at_all(self) -> None:
        with self._lock:
            watched = list(self._table.watched.values())
        self._look(watched)

    def _look(self, watched: Iterable[_Watched]) -> bool:
        """Look at the own session and at ``watched``, and report; whether all have left."""
        if self._closed:
            return True
        if not self._session.is_alive():
            self._died()
        return self._look_at(watched)

    def _look_at(self, watched: Iterable[_Watched]) -> bool:
        lives: dict[str, bool] = {}  # which sessions live, for one look
        have_left = True
        for one in watched:
            if self._has_left(one, lives):
                self._report(one)
                continue
            have_left = False
            if any(watch.version for watch in one.watches):
                version = values.version_of(self._directory, one.contender)
                self._table.report_value(one, version)
        return have_left

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

    def _report(self, watched: _Watched) -> None:
        self._table.report(watched, partial(self._proof, watched))

    def _proof(self, watched: _Watched, waiters: Sequence[Contender]) -> Departure:
        """What the departure of ``watched`` proves to ``waiters``, which are there or not now."""
        try:
            are_there = self._session.is_alive() and all(
                stands(self._directory, Slot.of(waiter)) for waiter in waiters
            )
        except OSError:
            are_there = False
        if not are_there:
            return Departure.UNORDERED
        return Departure.FIRST if watched.was_first else Departure.IN_ORDER


def _is_behind(waiters: Iterable[Contender], slot: Slot) -> bool:
    """Whether one of ``waiters`` stands behind ``slot``, so that who leaves it tells them."""
    places = map(Slot.of, waiters)
    return any(place.path == slot.path and place.token > slot.token for place in places)
