"""Observations of queues and data, over one watch stream.

The client reads a place at one revision; the place's watch reports what comes after that. Whatever
may have hidden an event makes the place stale, and the client reads it anew: a broken stream, or a
watch that the server has ended, as after a compaction. Observers see a state only once the server
has confirmed the watch behind it.

Servers have lost watch events. So the client also reads each place about once a minute. `probes`
finds out whether a stream is well that delivers nothing.

A new watch hears of changes up to 100 ms late. So the client follows a place for a while after its
last observer has left: an observer that comes back hears of a change at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from coordlock.backend import Listing, Observation
from coordlock.errors import (
    AuthenticationFailed,
    BackendUnavailable,
    ClientClosed,
    CoordlockError,
)
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import Timer, Timers, sleep
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, resolved
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import SERVICE, client_closed
from coordlock_etcd.following import Following
from coordlock_etcd.places import Place
from coordlock_etcd.probes import Probes
from coordlock_etcd.rpc import RANGE
from coordlock_etcd.transport import Connection, Limiter, StreamHost

__all__ = ["Observations"]

State = TypeVar("State", Snapshot, Listing)

#: Seconds after which a place is read again that could not be read.
_PAUSE: Final = 0.2
#: Seconds after which a place is read again, even if the stream is well.
_REREAD: Final = 60.0
#: Into how many parts the places are divided that are read again then.
_PARTS: Final = 12
#: So many places are read at a time.
_READINGS: Final = 16
#: How often, within the time for a probe, the client asks again for progress.
_TICKS: Final = 4
#: Seconds for which the client follows a place that has no observer any more.
_LINGERS: Final = 2.0
#: The id of responses that concern all watches of a stream.
_ALL: Final = -1


class Observations:
    """The observations of one client.

    Args:
        interval: seconds after which a silent connection counts as lost.
    """

    def __init__(self, connection: Connection, timers: Timers, interval: float) -> None:
        self._connection = connection
        self._timers = timers
        self._interval = interval
        self.host: StreamHost[Following] = StreamHost(connection, "coordlock-etcd-observe", self)
        self._lock = self.host.lock
        self._probes = Probes(connection, self.host, timers.clock, interval)
        self._limiter: Limiter[None] = Limiter(_READINGS)
        #: By place; the first is the one whose last reading is the oldest.
        self._followings: dict[tuple[str, str], Following] = {}
        #: Whether a stream is open, and all places are read for it, or being read.
        self._is_up = False
        self._is_ticking = False
        #: Timers that have not fired.
        self._due: set[Timer] = set()

    def observe(self, place: Place[Any, State], news: Callable[[], None]) -> Observation[State]:
        """Observe ``place``, or what is followed already of that name: see `Observation`."""
        now = self._timers.clock.now()
        observation: Observation[State] = Observation(
            news, lambda: self._leave(place.name, observation), now
        )
        with self._lock:
            following = self._followings.get(place.name) or Following(place, now)
            is_shared, is_up = bool(following.source.observers), self._is_up
            is_closed = self.host.closed
            if not is_closed:
                if not is_shared:
                    following.begin(now)
                following.source.observers.append(observation)
                self._followings[place.name] = following
                self._tick()
                self.host.start()
        if is_closed:
            observation.end(client_closed(), now)
        elif is_shared:
            following.source.tell(observation)
        elif is_up:
            self._read(following)
        return observation

    def close(self) -> None:
        """End all observations and let the thread end. Never blocks."""
        self.host.close()
        with self._lock:
            due, self._due = self._due, set()
        for timer in due:
            timer.cancel()
        for following in self._all():
            self._end(following, client_closed())

    def _leave(self, name: tuple[str, str], observation: Observation[Any]) -> None:
        with self._lock:
            following = self._followings.get(name)
            if following is not None and following.source.leave(observation):
                following.left_at = self._timers.clock.now()
                self._linger(following)

    def _end(self, following: Following, error: CoordlockError) -> None:
        with self._lock:
            self._stop(following)
            # Observers that come from now on begin anew.
            if self._followings.get(following.place.name) is following:
                del self._followings[following.place.name]
        following.source.end(error, self._timers.clock.now())

    def _all(self) -> list[Following]:
        with self._lock:
            return list(self._followings.values())

    # With the lock held

    def _linger(self, following: Following) -> None:
        if not following.is_leaving:
            following.is_leaving = True
            self._later(_LINGERS, partial(self._part, following))

    def _stop(self, following: Following) -> None:
        self.host.unwatch(following.id)
        following.stop(self._probes.delivered_until)

    # Reading, by calls whose answers come on gRPC's threads

    def _read(self, following: Following, pause: float = 0.0) -> None:
        run_in_background(self._reading(following, pause))

    def _reading(self, following: Following, pause: float) -> Steps[None]:
        """Read the place after ``pause`` seconds, until that succeeds or counts no more."""
        generation = following.generation
        while generation == following.generation:
            try:
                if pause:
                    yield sleep(self._timers, pause)
                yield self._limiter.submit("", partial(self._ask, following, generation))
                return
            except BackendUnavailable:
                pause = _PAUSE
            except ClientClosed:
                return
            except CoordlockError as error:
                if generation == following.generation:
                    self._end(following, error)
                return

    def _ask(self, following: Following, generation: int) -> Promise[None]:
        if generation != following.generation:  # since it waited for its turn with others
            return resolved(None)
        seen, now = self._connection.cluster.revision, self._timers.clock.now()
        take = partial(self._take, following, generation, seen, now)
        return self._connection.call(RANGE, following.place.reading(), take)

    def _take(
        self,
        following: Following,
        generation: int,
        seen: int,
        read_at: float,
        reply: pb.RangeResponse,
    ) -> None:
        place, revision = following.place, reply.header.revision
        parts = place.parts(reply.kvs)
        with self._lock:
            is_followed = self._followings.get(place.name) is following
            if generation != following.generation or not is_followed:
                return
            is_read = revision >= seen and following.read(parts, revision, read_at)  # see `data`
            if not (is_read or following.is_live):
                raise BackendUnavailable(SERVICE, "the answer is older than what was seen before")
            if not following.id and self.host.is_open:
                following.id = self.host.watch(following, place.watching)
        if following.is_live:
            following.source.tell()

    # What the host tells

    def needs_stream(self) -> bool:
        """See `StreamUser`, as for the following three."""
        return bool(self._followings)

    def opened(self) -> None:
        """Read all places."""
        with self._lock:
            self._is_up = True
            self._probes.restart()
            followings = self._all()
        for following in followings:
            self._read(following)

    def broke(self, error: CoordlockError | None, *, is_forgiven: bool) -> None:
        """All places are stale. Where a new login will do, observers hear only of a long delay."""
        with self._lock:
            self._is_up = False
            followings = self._all()
            for following in followings:
                self._stop(following)
        for following in followings:
            if isinstance(error, AuthenticationFailed):
                self._end(following, error)
            elif not is_forgiven:
                following.source.tell()
        if is_forgiven:
            self._later(self._interval, self._tell_delay)

    def received(self, response: pb.WatchResponse) -> None:
        """Take what etcd says of a place, or of all of them."""
        if response.watch_id == _ALL:
            self._probes.progressed(response.header.revision)
            return
        with self._lock:
            following = self.host.target(response.watch_id)
            if following is None:
                return  # cancelled meanwhile
            is_new = following.take(response)
            if response.canceled:  # because its history is compacted, as a rule
                self._stop(following)
        if response.canceled or is_new:
            following.source.tell()
        if response.canceled:
            self._read(following, 0.0 if response.compact_revision else _PAUSE)

    # The timers' thread

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def act() -> None:
            with self._lock:
                self._due.discard(timer)
            action()

        with self._lock, suppress(ClientClosed):
            timer = self._timers.call_at(self._timers.clock.now() + seconds, act)
            self._due.add(timer)

    def _part(self, following: Following) -> None:
        """Drop a place that has had no observer for long enough."""
        with self._lock:
            following.is_leaving = False
            is_followed = self._followings.get(following.place.name) is following
            if following.source.observers or not is_followed:
                return
            if self._timers.clock.now() - following.left_at < _LINGERS:
                self._linger(following)  # an observer came and left meanwhile
                return
            del self._followings[following.place.name]
            self._stop(following)

    def _tell_delay(self) -> None:
        """Tell observers of places that have been stale since their stream's token ended."""
        for following in self._all():
            if not following.is_live:
                following.source.tell()

    def _tick(self) -> None:
        with self._lock:
            if not self._is_ticking:
                self._is_ticking = True
                self._later(self._interval / _TICKS, self._probe)

    def _probe(self) -> None:
        with self._lock:
            self._is_ticking = False
            if self.host.closed or not self._followings:
                return
            self._tick()
            # A place that was read may be read.
            some = max(self._followings.values(), key=lambda one: one.is_live)
            is_up = self._is_up
        if is_up and self._probes.go_on(some.place.key):
            self._read_again()

    def _read_again(self) -> None:
        """Read places whose last reading is long ago, but only a part of all at a time."""
        now = self._timers.clock.now()
        with self._lock:
            most = len(self._followings) // _PARTS + 1
            live = (one for one in self._followings.values() if one.is_live)
            due = (one for one in live if now - one.read_at >= _REREAD)
            again = list(itertools.islice(due, most))
            for following in again:
                name = following.place.name
                self._followings[name] = self._followings.pop(name)
        for following in again:
            self._read(following)
