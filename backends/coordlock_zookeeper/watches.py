"""Departures of znodes: one watch on the server per path, however many callers wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from kazoo.protocol.states import Callback, EventType

from coordlock.errors import AuthenticationFailed
from coordlock.model.contender import Contender
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.answers import promise_of
from coordlock_zookeeper.errors import NoNode

__all__ = ["Watches"]

log = Log("coordlock.zookeeper")


@dataclass(eq=False, slots=True)
class _Waiting:
    """A callback for a departure, and the contenders that wait for it. Calling this cancels it.

    ``version`` is that of the value whose change is told, too; 0 where departures alone are.
    """

    path: str
    watched: _Watched
    departed: Callable[[bool], None]
    waiters: Sequence[Contender]
    cancel: Callable[[_Waiting], None]
    version: int = 0

    def __call__(self) -> None:
        self.cancel(self)


class _Watched:
    """A path, and the callbacks that wait for it to go.

    Attributes:
        armed: whether the server was asked to tell, so that only a new connection asks again.
        asked: how often it was asked, or might have been.
        certain: whether the server is known to have the watch.
        waiting: what is called when the path goes.
    """

    __slots__ = ("armed", "asked", "certain", "waiting")

    def __init__(self) -> None:
        self.armed = self.certain = False
        self.asked = 0
        self.waiting: list[_Waiting] = []

    def doubt(self) -> int:
        """The watch is not certain any more. The number of the answer that makes it so again."""
        self.certain = False
        self.asked += 1
        return self.asked


class Watches:
    """The watches of one session.

    A path stays in the table until it has gone or no callback waits for it. The server forgets
    watches when the connection breaks, and so does kazoo; `rearm` sets them again.

    The order in which departures are told: for watches that the server has, a session's events come
    in the order in which things happen. Events and answers are completed in different threads, so a
    departure that an answer shows is told like an event, behind the events that came before. That
    a watch was set proves that its path was there, however late the answer is looked at. So if
    a path is `certain` after another's departure was told, its own departure did not come first:
    that would have been told before.

    The callbacks run on kazoo's threads, and never under the lock.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.RLock()
        self._table: dict[str, _Watched] = {}
        self._closed = False
        self._cancelled = self._cancel  # one bound method for all

    def add(
        self,
        path: str,
        departed: Callable[[bool], None],
        waiters: Sequence[Contender] = (),
        version: int = 0,
    ) -> Callable[[], None]:
        """Call ``departed`` once ``path`` has gone, soon if it has; returns what cancels that.

        It is told whether those of ``waiters`` would have been told of before: see `certain`. With
        a ``version``, 1 for what was created, it is called also when the value has another.
        """
        with self._lock:
            if self._closed:
                return _nothing
            watched = self._table.get(path)
            if watched is None:
                watched = self._table[path] = _Watched()
            waiting = _Waiting(path, watched, departed, waiters, self._cancelled, version)
            watched.waiting.append(waiting)
            # Without a connection `rearm` will ask.
            asking = (version > 0 or not watched.armed) and self._client.connected
            watched.armed = watched.armed or asking
        if asking:
            try:
                self._ask(path, watched)
            except BaseException:
                waiting()
                raise
        return waiting

    def _cancel(self, waiting: _Waiting) -> None:
        path, watched = waiting.path, waiting.watched
        with self._lock, suppress(ValueError):  # cancelled before
            watched.waiting.remove(waiting)
            if not watched.waiting and self._table.get(path) is watched:
                # kazoo cannot take a watch back: it fires some day, and calls nothing.
                del self._table[path]

    def certain(self, path: str) -> bool:
        """Whether a callback waits for ``path``, and the server had the watch after the last break.

        Until `rearm` has begun, before the last but one: nothing is told in between.
        """
        with self._lock:
            watched = self._table.get(path)
            return watched is not None and watched.certain

    def rearm(self, *, broken: bool = False) -> None:
        """Ask the server to tell, about all paths; only where asking failed if ``broken``."""
        with self._lock:
            asking = [one for one in self._table.items() if not (broken and one[1].armed)]
            # All before any is asked for: in between, the connection may break once more, and what
            # the first answer shows be told.
            for _, watched in asking:
                watched.doubt()
                watched.armed = False
        for path, watched in asking:
            # When the connection has gone again, the next one asks.
            watched.armed = self._client.connected
            if watched.armed:
                self._ask(path, watched)

    def close(self) -> None:
        """Forget all: when a session has ended, it learns nothing about others any more."""
        with self._lock:
            self._closed = True
            self._table.clear()

    def _ask(self, path: str, watched: _Watched) -> None:
        # `get`, because `exists` would leave a watch on a path that has gone, for good. It is
        # always the same bound method: kazoo and the server keep equal watches of a path once.
        with self._lock:
            number = watched.doubt()
        try:
            answer = promise_of(self._client.get_async(path, watch=self._fired))
            answer.add_done_callback(partial(self._answered, path, watched, number))
        except BaseException:  # Ctrl-C, in the thread of one caller: others may wait, too
            watched.armed = False
            raise

    def _answered(self, path: str, watched: _Watched, number: int, answer: Promise[Any]) -> None:
        error = answer.exception()
        if error is None:
            _, stat = answer.result()
            with self._lock:
                watched.certain = watched.certain or watched.asked == number
                others = any(0 < one.version != stat.version + 1 for one in watched.waiting)
            if others:
                self._soon(self._change, path, stat.version + 1)
        elif isinstance(error, NoNode):
            self._gone(path)
        elif isinstance(error, AuthenticationFailed):
            # Of a node that we may not read the server tells no events (CVE-2024-23944). That it
            # has gone, the server tells those that ask: each heartbeat asks.
            watched.armed = False
        else:
            # The next heartbeat or the next connection asks again.
            watched.armed = False

    def _gone(self, path: str) -> None:
        # In the thread for events, behind those that have come.
        self._soon(self._depart, path)

    def _soon(self, action: Callable[..., None], *arguments: object) -> None:
        self._client.handler.dispatch_callback(Callback("watch", action, arguments))

    def _change(self, path: str, version: int) -> None:
        """The value of ``path`` has this version."""
        with self._lock:
            watched = self._table.get(path)
            waiting = [] if watched is None else watched.waiting
            told = [one for one in waiting if 0 < one.version != version]
        for one in told:
            one()
            _call(one.departed, False)

    def _fired(self, event: Any) -> None:
        # After a disconnect kazoo calls with EventType.NONE and no path.
        if event.type == EventType.DELETED:
            self._depart(event.path)
        elif event.type in (EventType.CHANGED, EventType.CREATED):
            with self._lock:
                watched = self._table.get(event.path)
            if watched is not None:
                self._ask(event.path, watched)

    def _depart(self, path: str) -> None:
        with self._lock:
            watched = self._table.pop(path, None)
            waiting = [] if watched is None else watched.waiting.copy()
        for one in waiting:
            # Asked now: when the waiters wake, the watches may be on another server.
            told_before = all(self.certain(waiter.key) for waiter in one.waiters)
            _call(one.departed, bool(one.waiters) and told_before)


def _call(departed: Callable[[bool], None], in_order: bool) -> None:
    try:
        departed(in_order)
    except Exception:
        log.exception("a callback for a departure failed")


def _nothing() -> None:
    pass
