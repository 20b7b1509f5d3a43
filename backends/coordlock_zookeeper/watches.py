"""Departures of znodes: one watch on the server for each path, however many callers wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from kazoo.protocol.serialization import GetData
from kazoo.protocol.states import EventType

from coordlock.backend import Departure
from coordlock.model.contender import Contender
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_zookeeper import nodes
from coordlock_zookeeper.requests import Answer, Requests

__all__ = ["Watches"]

log = Log("coordlock.zookeeper")


@dataclass(eq=False, slots=True)
class _Registration:
    """One call of `Watches.add`: ``on_departure`` is called when its path has gone.

    ``waiters`` are the contenders on whose behalf it waits. ``version`` is that of the value whose
    change is reported as well; 0 where only the departure is.
    """

    path: str
    watch: _Watch
    on_departure: Callable[[Departure], None]
    waiters: Sequence[Contender]
    remove: Callable[[_Registration], None]
    version: int

    def cancel(self) -> None:
        self.remove(self)


class _Watch:
    """The watch on one path.

    Attributes:
        is_set: whether the server was asked for it on this connection, and has not refused.
        is_certain: whether the server has confirmed it: see `Watches`.
        callers: are told when the path goes.
    """

    __slots__ = ("callers", "is_certain", "is_set")

    def __init__(self) -> None:
        self.is_set = self.is_certain = False
        self.callers: list[_Registration] = []


class Watches:
    """The watches of one session.

    A path stays in the table until it has gone or nobody waits for it. When the connection breaks,
    the server and kazoo forget all watches; `rearm` sets them again on the next connection.

    Departures are told in the order in which they happen, as far as the server has the watches.
    Where an answer shows a departure, it is told behind the events that came before the answer.

    A watch is *certain* once the server has confirmed it on this connection. The confirmation
    proves that the path was there, however late the answer is looked at. So if a path is certain
    when the departure of another is told, its own departure did not come first: that would have
    been told before.

    Callbacks run on kazoo's threads, and never under the lock.

    Attributes:
        first: the paths of own contenders that have waited, are known to stand first now, and pass
            their lock on.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._lock = threading.RLock()
        self._table: dict[str, _Watch] = {}
        self.first: set[str] = set()
        self._closed = False
        self._remove_one = self._remove  # one bound method for all

    def add(
        self,
        path: str,
        on_departure: Callable[[Departure], None],
        waiters: Sequence[Contender] = (),
        version: int = 0,
    ) -> Callable[[], None]:
        """Call ``on_departure`` once ``path`` has gone, soon if it has; returns what cancels that.

        In order if all of ``waiters`` were certain at that moment. With a ``version``, 1 for that
        of a new node, it is also called when the value has another.
        """
        with self._lock:
            if self._closed:
                return lambda: None
            watch = self._table.setdefault(path, _Watch())
            caller = _Registration(path, watch, on_departure, waiters, self._remove_one, version)
            watch.callers.append(caller)
            # Without a connection `rearm` will ask.
            asking = (version > 0 or not watch.is_set) and self._requests.are_possible
            watch.is_set = watch.is_set or asking
        if asking:
            try:
                self._ask(path, watch)
            except BaseException:
                caller.cancel()
                raise
        return caller.cancel

    def _remove(self, caller: _Registration) -> None:
        path, watch = caller.path, caller.watch
        with self._lock, suppress(ValueError):  # cancelled before
            watch.callers.remove(caller)
            if not watch.callers and self._table.get(path) is watch:
                # kazoo cannot take a watch back: it fires some day, and calls nothing.
                del self._table[path]

    def certain(self, path: str) -> bool:
        """Whether somebody waits for ``path``, and its watch is certain.

        A break of the connection ends that only when `rearm` begins on the next one. No harm: what
        is told until then are events of the connection on which the watch was confirmed.
        """
        with self._lock:
            watch = self._table.get(path)
            return watch is not None and watch.is_certain

    def note_first(self, path: str) -> None:
        """The own contender ``path`` has waited, and stands first now."""
        if nodes.passes_on(path.rpartition("/")[2]):
            self.first.add(path)

    def rearm(self, *, missing: bool = False) -> None:
        """Ask for all watches, or only for those ``missing`` because the server was not asked."""
        with self._lock:
            asking = [one for one in self._table.items() if not (missing and one[1].is_set)]
            # Doubt all before asking for the first. The connection may break in between, and then
            # what the first answer shows is told while the others are not set.
            for _, watch in asking:
                watch.is_certain = watch.is_set = False
        for path, watch in asking:
            # When the connection has gone again, the next one asks.
            watch.is_set = self._requests.are_possible
            if watch.is_set:
                self._ask(path, watch)

    def close(self) -> None:
        """Forget all: when a session has ended, it learns nothing about others any more."""
        with self._lock:
            self._closed = True
            self._table.clear()

    def _ask(self, path: str, watch: _Watch) -> None:
        # `get`, because `exists` would leave a watch on a path that has gone, for good. It is
        # always the same bound method: kazoo and the server keep equal watches of a path once.
        watch.is_certain = False
        try:
            request = self._requests.made(GetData, path, self._fired)
            self._requests.send(request, partial(self._answered, path, watch))
        except BaseException:  # Ctrl-C, in the thread of one caller: others may wait, too
            watch.is_set = False
            raise

    def _answered(self, path: str, watch: _Watch, answer: Promise[Answer]) -> None:
        if answer.exception() is not None:
            # The next heartbeat or the next connection asks again. Of a node that this client may
            # not read, the server sends no events (CVE-2024-23944), but it answers whether it has
            # gone: so each heartbeat asks.
            watch.is_set = False
        elif (found := answer.result()[0]) is None:
            self._requests.after_events(self._departed, path)
        else:
            version = found[1].version + 1
            watch.is_certain = True
            if any(0 < one.version != version for one in watch.callers.copy()):
                self._requests.after_events(self._changed, path, version)

    def _changed(self, path: str, version: int) -> None:
        """The value of ``path`` has this version."""
        for one in self._callers(path):
            if 0 < one.version != version:
                one.cancel()
                _call(one, Departure.UNORDERED)

    def _fired(self, event: Any) -> None:
        # After a disconnect kazoo calls with EventType.NONE and no path.
        if event.type == EventType.DELETED:
            self._departed(event.path)
        elif event.type == EventType.CHANGED and nodes.passes_on(event.path.rpartition("/")[2]):
            self._departed(event.path, passed=True)
        elif event.type in (EventType.CHANGED, EventType.CREATED):
            with self._lock:
                watch = self._table.get(event.path)
            if watch is not None:
                self._ask(event.path, watch)

    def _departed(self, path: str, *, passed: bool = False) -> None:
        queue = path.rpartition("/")[0]
        with self._lock:
            if (watch := self._table.get(path)) is not None:
                watch.is_certain = False
        while callers := self._callers(path):
            for one in callers:
                # Decided now: when the waiters wake, the watches may be on another server.
                in_order = bool(one.waiters) and all(self.certain(each.key) for each in one.waiters)
                for each in one.waiters if passed and in_order else ():
                    if each.key.rpartition("/")[0] == queue:  # others of its set may not be first
                        self.note_first(each.key)
                departure = Departure.FIRST if passed else Departure.IN_ORDER
                _call(one, departure if in_order else Departure.UNORDERED)
                one.cancel()  # not before: what a signal handler ends is reported again

    def _callers(self, path: str) -> list[_Registration]:
        with self._lock:
            watch = self._table.get(path)
            return [] if watch is None else watch.callers.copy()


def _call(registration: _Registration, departure: Departure) -> None:
    try:
        registration.on_departure(departure)
    except Exception:
        log.exception("a callback for a departure failed")
