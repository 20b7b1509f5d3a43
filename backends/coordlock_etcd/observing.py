"""Observations of queues and data, over one watch stream.

The client reads a place, watches it from etcd's present on, and reads it again once etcd has filed
the watch, and after each change. It reads first because etcd refuses a watch without the right to
read there, and that ends the stream of all others.

Silence proves nothing: the connection may be cut off, or the member, or the member may lag, and
servers have lost events. So each interval the client asks, by linearizable readings in one
transaction, whether any place has changed since it asked before. If no answer comes, the stream
counts as broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from coordlock.backend import Observation, Queue
from coordlock.backend.observers import Observers
from coordlock.errors import AuthenticationFailed, ClientClosed, CoordlockError
from coordlock.runtime.clock import Timer, Timers, sleep
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, all_of
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import client_closed
from coordlock_etcd.keys import Layout, prefix_end
from coordlock_etcd.rpc import TXN
from coordlock_etcd.transport import Connection, StreamHost

__all__ = ["Observations"]

Place = Queue | str

#: Seconds after which a place is read again that could not be read.
REREAD_DELAY_S: Final = 0.2


@dataclass(eq=False, slots=True)
class _Watch:
    """The watch on a place: its id on the stream, 0 for none; and what the last look has shown.

    That is the revision, and how many keys are there.
    """

    id: int = 0
    revision: int = 0
    count: int = -1


class Observations:
    """The observations of one client.

    Args:
        interval: seconds between looks, and within which each is to be answered.
    """

    def __init__(
        self, layout: Layout, connection: Connection, timers: Timers, interval: float
    ) -> None:
        self._layout = layout
        self._connection = connection
        self._timers = timers
        self._interval = interval
        self.host: StreamHost[Place] = StreamHost(connection, "coordlock-etcd-observe", self)
        self._lock = self.host.lock
        self._observers = Observers(self, timers.clock, self._lock)
        self._watches: dict[Place, _Watch] = {}
        self._timer: Timer | None = None
        #: When the last look was sent: what had changed by then is read, or about to be.
        self.looked_at = 0.0

    def observe(
        self, place: Place, read: Callable[[], Promise[Any]], news: Callable[[], None]
    ) -> Observation[Any]:
        """Observe ``place``, which ``read`` reads: see `Backend.follow`."""

        def reading() -> Promise[Any]:
            return run_in_background(self._read(place, read))

        return self._observers.observe(place, reading, news)

    def close(self) -> None:
        """End all observations and let the thread end. Never blocks."""
        self.host.close()
        self._observers.close(client_closed())
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()

    def _read(self, place: Place, read: Callable[[], Promise[Any]]) -> Steps[Any]:
        state = yield read()
        with self._lock:
            watch = self._watches.get(place)
            if watch is not None and not watch.id and self.host.is_open:
                watch.id = self.host.watch(place, *self._range(place), puts=True)
        return state

    def _range(self, place: Place) -> tuple[bytes, bytes]:
        if isinstance(place, str):
            return self._layout.range_of(place)
        prefix = self._layout.queue(place.name)
        return prefix, prefix_end(prefix)

    # See `Reporter`

    def report(self, place: Place) -> bool:
        self.host.start()
        self._watches[place] = _Watch()
        self._tick()
        return self.host.is_open

    def unreport(self, place: Place) -> None:
        self.host.unwatch(self._watches.pop(place).id)

    def pause(self) -> Promise[None]:
        return sleep(self._timers, self._timers.jitter(REREAD_DELAY_S))

    # See `StreamUser`

    def needs_stream(self) -> bool:
        return bool(self._watches)

    def opened(self) -> None:
        for place in self._observers.places():
            self._observers.live(place)

    def broke(self, error: CoordlockError | None) -> None:
        with self._lock:
            self._watches = {place: _Watch() for place in self._watches}
        self._observers.gap(self.looked_at)
        if isinstance(error, AuthenticationFailed):
            self._observers.end(error)

    def received(self, response: pb.WatchResponse) -> None:
        with self._lock:
            place = self.host.target(response.watch_id)
        if place is None:
            return  # cancelled meanwhile
        if response.canceled:  # because its history is compacted, as a rule
            self.host.restart()
        elif response.created or any(self._concerns(place, one.kv.key) for one in response.events):
            self._observers.changed(place)

    def _concerns(self, place: Place, key: bytes) -> bool:
        """Whether ``key`` is in ``place``, and not deeper in a folder."""
        return not isinstance(place, str) or self._layout.is_at(place, key)

    # The timers' thread

    def _tick(self) -> None:
        with self._lock, suppress(ClientClosed):
            if self._timer is None and not self.host.closed:
                when = self._timers.clock.now() + self._interval
                self._timer = self._timers.call_at(when, self._look)

    def _look(self) -> None:
        with self._lock:
            self._timer = None
            if self._watches:
                self._tick()
            # A place that is watched may be read.
            watched = [(place, watch) for place, watch in self._watches.items() if watch.id]
        answers = []
        timeout, now = min(self._connection.timeout, self._interval), self._timers.clock.now()
        for start in range(0, len(watched), requests.MAX_OPERATIONS):
            batch = watched[start : start + requests.MAX_OPERATIONS]
            ranges = [(*self._range(place), watch.revision) for place, watch in batch]
            compare = partial(self._compare, batch)
            answers.append(
                self._connection.call(TXN, requests.changed(ranges), compare, timeout=timeout)
            )
        all_of(answers).add_done_callback(partial(self._looked, now))

    def _compare(self, batch: Sequence[tuple[Place, _Watch]], reply: pb.TxnResponse) -> None:
        for (place, watch), operation in zip(batch, reply.responses, strict=True):
            found = operation.response_range
            if found.kvs or found.count != watch.count:
                self._observers.changed(place)
            watch.revision, watch.count = reply.header.revision, found.count

    def _looked(self, asked_at: float, answer: Promise[Any]) -> None:
        if answer.exception() is None:
            self.looked_at = asked_at
        else:
            self.host.restart()
