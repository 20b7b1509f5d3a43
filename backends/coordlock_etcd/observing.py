"""Observations of queues and data, over one watch stream.

The client reads a place, watches it from etcd's present on, and reads it again once etcd has filed
the watch. Then it applies what the watch reports to keys and folders; queues are read again. It
reads first because etcd refuses a watch without the right to read there, and that ends the stream
of all others.

Servers have lost watch events. So the client also reads all places once a minute. `probes` finds
out whether a stream is well that delivers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from coordlock.backend import Listing, Observation, Queue, VersionedValue
from coordlock.backend.observers import Observers
from coordlock.errors import (
    AuthenticationFailed,
    ClientClosed,
    CoordlockError,
)
from coordlock.runtime.clock import Timer, Timers, sleep
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import client_closed
from coordlock_etcd.keys import Layout, prefix_end
from coordlock_etcd.probes import Probes
from coordlock_etcd.transport import Connection, StreamHost

__all__ = ["Observations"]

Place = Queue | str

#: Seconds after which a place is read again that could not be read.
REREAD_DELAY_S: Final = 0.2
#: Seconds after which all places are read again, even if the stream is well.
REREAD_INTERVAL_S: Final = 60.0
#: How often, within the time for a probe, the client asks again for progress.
_TICKS_PER_INTERVAL: Final = 4
#: The id of responses that concern all watches of a stream.
_ALL_WATCHES_ID: Final = -1


class Observations:
    """The observations of one client.

    Args:
        interval: seconds after which a silent connection counts as lost.
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
        self._probes = Probes(connection, self.host, timers.clock, interval)
        #: What is observed, and the id of its watch on the stream; 0 for none.
        self._watches: dict[Place, int] = {}
        self._timer: Timer | None = None
        #: When all places are read again.
        self._reread_at = timers.clock.now() + REREAD_INTERVAL_S

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
            if self._watches.get(place) == 0 and self.host.is_open:
                key, end = self._range(place)
                self._watches[place] = self.host.watch(place, key, end, puts=True)
        return state

    def _range(self, place: Place) -> tuple[bytes, bytes]:
        if isinstance(place, str):
            return self._layout.range_of(place)
        prefix = self._layout.queue(place.name)
        return prefix, prefix_end(prefix)

    # See `Reporter`

    def report(self, place: Place) -> bool:
        self.host.start()
        self._watches[place] = 0
        self._tick()
        return self.host.is_open

    def unreport(self, place: Place) -> None:
        self.host.unwatch(self._watches.pop(place))

    def pause(self) -> Promise[None]:
        return sleep(self._timers, self._timers.jitter(REREAD_DELAY_S))

    # See `StreamUser`

    def needs_stream(self) -> bool:
        return bool(self._watches)

    def opened(self) -> None:
        self._probes.restart()
        for place in self._observers.places():
            self._observers.live(place)

    def broke(self, error: CoordlockError | None) -> None:
        with self._lock:
            self._watches = dict.fromkeys(self._watches, 0)
        # Where a new login will do, observers learn only of a delay: see `_probe`.
        self._observers.gap(self._probes.delivered_until, is_shown=error is not None)
        if isinstance(error, AuthenticationFailed):
            self._observers.end(error)

    def received(self, response: pb.WatchResponse) -> None:
        if response.watch_id == _ALL_WATCHES_ID:
            self._probes.progressed(response.header.revision)
            return
        with self._lock:
            place = self.host.target(response.watch_id)
        if place is None:
            return  # cancelled meanwhile
        if response.canceled:  # because its history is compacted, as a rule
            self.host.restart()
        elif response.created or not isinstance(place, str):
            self._observers.changed(place)
        elif events := [event for event in response.events if self._concerns(place, event)]:
            self._observers.changed(place, partial(self._applied, events))

    def _concerns(self, place: str, event: pb.Event) -> bool:
        """Whether ``event`` changes ``place``, and not what lies deeper in a folder."""
        return self._layout.is_at(place, event.kv.key)

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
                when = self._timers.clock.now() + self._interval / _TICKS_PER_INTERVAL
                self._timer = self._timers.call_at(when, self._probe)

    def _probe(self) -> None:
        places = self._observers.places()
        with self._lock:
            self._timer = None
            is_open = self.host.is_open
        if not places:
            return
        self._tick()
        if not is_open:
            self._observers.tell()
            return
        # A place that was read may be read.
        readable = max(places, key=lambda place: self._observers.state(place) is not None)
        now = self._timers.clock.now()
        if self._probes.go_on(self._range(readable)[0]) and now >= self._reread_at:
            self._reread_at = now + REREAD_INTERVAL_S
            for place in places:
                self._observers.changed(place)
