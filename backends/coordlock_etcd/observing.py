"""Observations of queues and data, over one watch stream.

The client reads a place, watches it from etcd's present on, and reads it again once etcd has filed
the watch. Then it applies what the watch reports to keys and folders; queues are read again. It
reads first because etcd refuses a watch without the right to read there, and that ends the stream
of all others.

Silence proves nothing: the connection may be cut off, or the member, or the member may lag, and
servers have lost events. So each interval the client asks, by linearizable readings in one
transaction, which keys have changed since it asked before. It reads a place with changes that its
watch has not reported. If no answer comes, or the stream brings nothing until the next look though
there are such changes, it counts as broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from coordlock.backend import Listing, Observation, Queue, VersionedValue
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
    """The watch on a place, and what it has reported.

    Attributes:
        id: on the stream; 0 for none.
        revision: that of the last look, or at which etcd has filed it; 0 before.
        count: how many keys the last look has found; -1 before the first.
        changes: what it has reported since: the revision, the key, and how many keys that added.
    """

    id: int = 0
    revision: int = 0
    count: int = -1
    changes: list[tuple[int, bytes, int]] = field(default_factory=list)

    def report(self, events: Sequence[pb.Event]) -> None:
        """Take what etcd reports."""
        for event in events:
            kv = event.kv
            added = -1 if event.type == pb.Event.DELETE else int(kv.version == 1)
            self.changes.append((kv.mod_revision, kv.key, added))

    def misses(self, found: pb.RangeResponse, revision: int) -> bool:
        """Whether ``found``, a look at ``revision``, shows a change that it has not reported."""
        reported = [one for one in self.changes if self.revision < one[0] <= revision]
        newest = {key: at for at, key, _ in reported}
        count = self.count + sum(added for _, _, added in reported)
        self.changes = [one for one in self.changes if one[0] > revision]
        self.revision, self.count = revision, found.count
        return found.count != count or any(
            newest.get(kv.key) != kv.mod_revision for kv in found.kvs
        )


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
        #: Whether a look has found what no watch had reported, and nothing has come since.
        self._is_starved = False

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
        self._is_starved = False
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
            self._is_starved = False
            place = self.host.target(response.watch_id)
            if place is None:
                return  # cancelled meanwhile
            if response.created:
                self._watches[place].revision = response.header.revision
            self._watches[place].report(response.events)
        if response.canceled:  # because its history is compacted, as a rule
            self.host.restart()
        elif response.created or not isinstance(place, str):
            self._observers.changed(place)
        # What lies deeper in a folder does not concern it.
        elif news := [one for one in response.events if self._layout.is_at(place, one.kv.key)]:
            self._observers.apply(place, partial(self._applied, news))

    def _applied(self, events: Sequence[pb.Event], known: Listing) -> Listing:
        """``known`` with the newer ones of ``events``.

        A watch reports all events in their order, and those of one revision together. So what was
        read at a revision, with all events after that, is the state of the latest one.
        """
        news = [event for event in events if event.kv.mod_revision > known.revision]
        if not news:
            return known
        values = dict(known.values)
        for event in news:
            path = self._layout.path(event.kv.key)
            if event.type == pb.Event.DELETE:
                values.pop(path, None)
            else:
                values[path] = VersionedValue(event.kv.value, event.kv.version)
        return Listing(dict(sorted(values.items())), news[-1].kv.mod_revision)

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
        if answers:
            all_of(answers).add_done_callback(partial(self._looked, now))

    def _compare(self, batch: Sequence[tuple[Place, _Watch]], reply: pb.TxnResponse) -> bool:
        """Read the places with changes that were not reported; whether there are any."""
        with self._lock:
            missed = [
                place
                for (place, watch), operation in zip(batch, reply.responses, strict=True)
                if watch.misses(operation.response_range, reply.header.revision)
            ]
        for place in missed:
            self._observers.changed(place)
        return bool(missed)

    def _looked(self, asked_at: float, answer: Promise[tuple[bool, ...]]) -> None:
        was_starved = self._is_starved
        if answer.exception() is None:
            self.looked_at, self._is_starved = asked_at, any(answer.result())
        if answer.exception() is not None or (was_starved and self._is_starved):
            self.host.restart()
