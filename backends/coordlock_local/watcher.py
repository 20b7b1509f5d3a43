"""Watching contenders, on behalf of those that wait for them to leave."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

from coordlock.backend import Departure
from coordlock.model.contender import Contender
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS
from coordlock_local import values
from coordlock_local.listening import Key, Listening
from coordlock_local.notices import Notices, notices
from coordlock_local.session import LocalSession, is_alive, rings
from coordlock_local.slots import SERVED, Slot, stands

__all__ = ["Watcher"]

log = Log("coordlock.local")

#: So many contenders are looked at when the bell rings.
_FEW: Final = 16
#: How many sessions the watcher remembers as ringing or not.
_REMEMBERED: Final = 64

_OnDeparture = Callable[[Departure], None]


class _Watched:
    """A contender that is watched, and by whom."""

    def __init__(self, contender: Contender, version: int) -> None:
        self.contender: Final = contender
        self.version: Final = version
        #: The files that tell of it.
        self.paths: Final[list[str]] = []
        #: The one among them that tells of nothing else.
        self.own_file: str | None = None
        #: Whether a look has shown that it was there, after its files were watched.
        self.was_seen = False
        #: What is called, and the contenders on whose behalf.
        self.watchers: dict[object, tuple[_OnDeparture, Sequence[Contender]]] = {}
        #: Whether a look has shown that none stood before it when it had left.
        self.was_first = False


class Watcher:
    """Watches contenders of a directory on behalf of a session.

    Three files tell of a contender: its session's file, when its process ends or another process
    evicts it; the queue's file, should it be removed; and one that the contender's process opens
    when the contender has left. That is the bell of this session, if the next contender is this
    session's: who leaves reads whose that is. Otherwise this makes a file for the contender, which
    the contender's process also removes. The session's own contenders leave through
    `own_left`, without such a file. The state directory itself tells when it is moved.

    A notice only says where to look. The watcher always reads from the queue and the session's lock
    whether a contender has left. Now and then it looks at all contenders, so no lost notice loses a
    departure.
    """

    def __init__(
        self,
        session: LocalSession,
        source: Callable[[], Notices] = notices,
        died: Callable[[], object] = lambda: None,
    ) -> None:
        """``died`` is called, perhaps repeatedly, while other processes find ``session`` dead."""
        self._session = session
        self._died = died
        self._directory = session.directory
        self._lock = threading.RLock()
        self._watched: dict[Key, _Watched] = {}
        #: Whether other sessions ring the bell.
        self._ringing: dict[str, bool] = {}
        self._looks = 0
        self._bell = self._directory.bell(session.id)
        self._listening = Listening(
            self._directory,
            self._bell,
            self._lock,
            source,
            self._look,
            lambda: bool(self._watched),
        )
        self._closed = False
        self._pid = PROCESS.id

    def watch(
        self,
        contender: Contender,
        on_departure: _OnDeparture,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        """Call ``on_departure`` once when ``contender`` has left, perhaps at once; what cancels it.

        In order if ``waiters`` are in their queues afterwards: tokens never come back. With
        ``changes``, it is also called when the version of the contender's value is another.

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
                    self._drop(key, watched)

        with self._lock:
            if self._closed:
                return cancel
            self._listening.start()
            watched = self._watched.get(key)
            if watched is None:
                watched = self._watched[key] = _Watched(contender, version)
            is_known = self._order(watched, key, () if changes else waiters)
            watched.watchers[registration] = on_departure, () if changes else waiters
            looks = self._looks
        # After the notices are ordered, so that nothing falls between. The notices serve later
        # watchers of the same contender.
        if not is_known:
            if self._is_due(watched, {}):
                self._tell(key)
                if watched.own_file is not None:
                    with suppress(OSError):  # made in vain: no process removes it any more
                        os.unlink(watched.own_file)
                return cancel
            watched.was_seen = True
            with self._lock:
                if looks == self._looks:
                    self._listening.note_life(watched.paths[0])
        return cancel

    def _order(self, watched: _Watched, key: Key, waiters: Sequence[Contender]) -> bool:
        """Watch the files that report the departure of ``watched``; whether it is still there.

        True if the files were watched when it was there: they would have reported it. False in
        doubt.
        """
        contender, slot = watched.contender, Slot.of(watched.contender)
        root = self._directory.root
        paths = [self._directory.session(contender.session), slot.path, root]
        stood = False  # the session's own may have left without a notice
        if contender.session != self._session.id:
            nearest = self._before(contender, slot, waiters)
            stood = nearest == slot.token
            if nearest is not None and nearest <= slot.token:
                paths.append(self._bell)
            else:
                watched.own_file = self._directory.watch(contender.session, contender.id)
                paths.append(watched.own_file)
        watched.paths.extend([path for path in paths if path not in watched.paths])
        fresh = [path for path in paths if self._listening.add(path, key)]
        return not fresh and (watched.was_seen or (stood and self._listening.lives(paths[0])))

    def _before(self, contender: Contender, slot: Slot, waiters: Sequence[Contender]) -> int | None:
        """The token just before that of the waiter in the queue of ``contender``, or 0.

        None where the process of ``contender`` would not ring the bell for it.
        """
        mine = next((one for one in map(Slot.of, waiters) if one.path == slot.path), None)
        if mine is None or mine.number >= SERVED or self._listening.count(self._bell) >= _FEW:
            return None
        session = contender.session
        if session not in self._ringing:
            _remember(self._ringing, session, rings(self._directory, session))
        if not self._ringing[session]:
            return None
        return max(self._session.before(slot.path, mine.token), default=0)

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
            self._closed = True
            self._watched.clear()
        self._listening.close()

    def _drop(self, key: Key, watched: _Watched) -> None:
        for path in watched.paths:
            self._listening.drop(path, key)

    def _look(self, changed: Collection[str] | None) -> bool:
        """Look at all contenders, or those of ``changed`` files, and tell; whether all were due."""
        if not self._session.is_alive():
            self._died()
        with self._lock:
            self._looks += 1
            keys: Collection[Key] = self._watched
            if changed is None:
                self._listening.forget_lives()
            else:
                keys = self._listening.keys_of(changed)
            looked_at = {key: self._watched[key] for key in keys if key in self._watched}
        lives: dict[str, bool] = {}
        over = [key for key, watched in looked_at.items() if self._is_due(watched, lives)]
        for key in over:
            self._tell(key)
        return len(over) == len(looked_at)

    def _is_due(self, watched: _Watched, lives: dict[str, bool]) -> bool:
        """Whether to tell its watchers. ``lives`` remembers which sessions live, for one look."""
        if self._has_left(watched, lives):
            return True
        return 0 < watched.version != values.version_of(self._directory, watched.contender)

    def _has_left(self, watched: _Watched, lives: dict[str, bool]) -> bool:
        """Whether the contender is gone, or its session is dead."""
        contender = watched.contender
        session, slot = contender.session, Slot.of(contender)
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
            log.debug("cannot look at %s: %s", contender.key, error)
            return False
        return not lives[session]

    def _are_there(self, waiters: Sequence[Contender]) -> bool:
        if not waiters or not self._session.is_alive():
            return False
        try:
            return all(stands(self._directory, Slot.of(waiter)) for waiter in waiters)
        except OSError:
            return False

    def _tell(self, key: Key) -> None:
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
                    self._drop(key, watched)
                    return
                registration, (on_departure, waiters) = next(iter(watched.watchers.items()))
            departure = Departure.UNORDERED
            if self._are_there(waiters):
                departure = Departure.FIRST if watched.was_first else Departure.IN_ORDER
            try:
                on_departure(departure)
            except Exception:
                log.exception("a watcher of %s failed", key[0])
            watched.watchers.pop(registration, None)


def _remember(found: dict[str, bool], key: str, value: bool) -> None:
    """Note ``value``, and forget all others when they are many."""
    if len(found) >= _REMEMBERED:
        found.clear()
    found[key] = value
