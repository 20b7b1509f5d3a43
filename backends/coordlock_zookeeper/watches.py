"""Departures of znodes: one watch on the server for each path, however many callers wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kazoo.protocol.serialization import GetData
from kazoo.protocol.states import EventType

from coordlock.backend import Departure
from coordlock.backend.watch_table import Watched, WatchTable
from coordlock.model.contender import Contender
from coordlock.runtime.promise import Promise
from coordlock_zookeeper import nodes
from coordlock_zookeeper.requests import Answer, Requests

__all__ = ["Watches"]


class _WatchedNode(Watched):
    """A znode that is watched; its path is the key.

    Attributes:
        path: the znode's.
        is_certain: whether the server has confirmed the watch: see `Watches`.
    """

    __slots__ = ("is_certain", "path")

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path
        self.is_certain = False


class Watches:
    """The watches of one session.

    The first caller that waits for a path asks for its watch. Each heartbeat asks for those that
    the server has not confirmed: a signal handler may have struck the caller, or the server may
    have refused. When the connection breaks, the server and kazoo forget all watches; `rearm` sets
    them again on the next connection.

    Departures are reported in the order in which they happen, as far as the server has the watches.
    A departure that an answer shows is reported behind the events that came before the answer.

    A watch is *certain* once the server has confirmed it on this connection. The confirmation
    proves that the path was there, however late the answer is looked at. So if a path is certain
    when the departure of another is reported, its own departure did not come first.

    Callbacks run on kazoo's threads, and never under the lock.

    Attributes:
        known_first: the paths of own contenders that have waited, are known to stand first now, and
            announce their release.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._lock = threading.RLock()
        self._table: Final[WatchTable[_WatchedNode]] = WatchTable(self._lock)
        self.known_first: Final[set[str]] = set()
        self._is_closed = False

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
            if self._is_closed:
                return lambda: None
            wanted = _WatchedNode(path)
            node, cancel = self._table.add(wanted, on_departure, waiters, version)
        # Without a connection `rearm` will ask.
        if (version or node is wanted) and self._requests.are_possible:
            self._ask(node)
        return cancel

    def certain(self, path: str) -> bool:
        """Whether a caller waits for ``path``, and its watch is certain.

        A break of the connection ends that only when `rearm` begins on the next one. No harm: what
        is reported until then are events of the connection on which the watch was confirmed.
        """
        node = self._table.watched.get(path)
        return node is not None and node.is_certain

    def mark_first(self, path: str) -> None:
        """The own contender ``path`` has waited, and stands first now."""
        if nodes.announces_release(path.rpartition("/")[2]):
            self.known_first.add(path)

    def rearm(self, *, missing: bool = False) -> None:
        """Ask for all watches, or only for those ``missing`` that are not certain."""
        with self._lock:
            watched = self._table.watched.values()
            asked = [node for node in watched if not (missing and node.is_certain)]
            # Doubt all before asking for the first. The connection may break in between, and then
            # what the first answer shows is reported while the others are not set.
            for node in asked:
                node.is_certain = False
        for node in asked:
            if self._requests.are_possible:  # else the next connection asks
                self._ask(node)

    def close(self) -> None:
        """Forget all: when a session has ended, it learns nothing about others any more."""
        with self._lock:
            self._is_closed = True
            self._table.clear()

    def _ask(self, node: _WatchedNode) -> None:
        # `get`, because `exists` would leave a watch on a path that has gone, for good. It is
        # always the same bound method: kazoo and the server keep equal watches of a path once.
        # kazoo cannot take a watch back: it fires some day, and calls nothing.
        node.is_certain = False
        request = self._requests.made(GetData, node.path, self._fired)
        self._requests.send(request, partial(self._answered, node))

    def _answered(self, node: _WatchedNode, answer: Promise[Answer]) -> None:
        if answer.exception() is not None:
            # The next heartbeat or the next connection asks again. Of a node that this client may
            # not read, the server sends no events (CVE-2024-23944), but it answers whether it has
            # gone: so each heartbeat asks.
            return
        if (found := answer.result()[0]) is None:
            self._requests.after_events(self._departed, node.path)
        else:
            node.is_certain = True
            if any(watch.version for watch in tuple(node.watches)):
                version = found[1].version + 1
                self._requests.after_events(self._table.report_value, node, version)

    def _fired(self, event: Any) -> None:
        # After a disconnect kazoo calls with EventType.NONE and no path.
        if event.type == EventType.DELETED:
            self._departed(event.path)
        elif event.type == EventType.CHANGED and nodes.announces_release(
            event.path.rpartition("/")[2]
        ):
            self._departed(event.path, Departure.FIRST)
        elif event.type in (EventType.CHANGED, EventType.CREATED) and (
            node := self._table.watched.get(event.path)
        ):
            self._ask(node)

    def _departed(self, path: str, proof: Departure = Departure.IN_ORDER) -> None:
        if (node := self._table.watched.get(path)) is not None:
            node.is_certain = False
            self._table.report(node, partial(self._proof, path.rpartition("/")[0], proof))

    def _proof(self, queue: str, proof: Departure, waiters: Sequence[Contender]) -> Departure:
        """What it proves. Decided now: when waiters wake, the watches may be on another server."""
        if not all(self.certain(waiter.key) for waiter in waiters):
            return Departure.UNORDERED
        for waiter in waiters if proof is Departure.FIRST else ():
            if waiter.key.rpartition("/")[0] == queue:  # others of its set may not be first
                self.mark_first(waiter.key)
        return proof
