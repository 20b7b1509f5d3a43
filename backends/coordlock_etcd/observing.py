"""Observations: one stream carries the watches of all places, and is reopened when it breaks.

A place is read at one revision, and its watch tells what comes after that. Whatever may have hidden
an event puts the place in doubt, and it is read anew: a broken stream, a watch that the server has
ended, as after a compaction. A state is shown once the watch behind it is known to be there.

Since servers have lost watch events, each place is also read about once a minute. Whether the
stream is well while it tells nothing, `looks` finds out.

A new watch is told of changes up to a tenth of a second late. So the client follows a place for a
while after the last observer has left it: an observer that comes back hears of a change at once.
"""

from __future__ import annotations

import itertools
import threading
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
from coordlock.runtime.clock import SYSTEM_CLOCK, SystemTimers
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, resolved
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE, WatchRefused
from coordlock_etcd.following import Following
from coordlock_etcd.looks import Looks
from coordlock_etcd.places import Place
from coordlock_etcd.rpc import RANGE
from coordlock_etcd.transport import Connection, Limiter, Stream, can_start_threads

__all__ = ["Observations"]

log = Log("coordlock")

State = TypeVar("State", Snapshot, Listing)

#: Seconds between attempts to open a stream: the first doubles up to the last.
_BACKOFF: Final = (0.1, 2.0)
#: Seconds after which a place is read again that could not be read.
_PAUSE: Final = 0.2
#: Seconds after which a place is read again, even if the stream is well.
_REREAD: Final = 60.0
#: Into how many parts the places are divided that are read again then.
_PARTS: Final = 12
#: So many places are read at a time.
_READINGS: Final = 16
#: So often, within the time for a look, the client sees how the look is getting on.
_TICKS: Final = 4
#: Seconds for which the client follows a place that has no observer any more.
_LINGERS: Final = 2.0
#: The id of responses that concern all watches of a stream.
_ALL: Final = -1


class Observations:
    """The observations of one client. Its threads start with the first one.

    Args:
        interval: seconds after which a silent connection counts as lost.
    """

    def __init__(self, connection: Connection, interval: float) -> None:
        self._connection = connection
        self._interval = interval
        self._looks = Looks(connection, interval)
        self._timers = SystemTimers("coordlock-etcd-look")
        self._limiter: Limiter[None] = Limiter(_READINGS)
        # Entered by the plain lock: Ctrl-C in `Condition.__enter__` would leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        #: By place; the first is the one that was read again least lately.
        self._followings: dict[tuple[str, str], Following] = {}
        self._by_id: dict[int, Following] = {}
        self._ids = itertools.count(1)
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self._delay = _BACKOFF[0]
        #: Whether the last answer to a new watch was a refusal. The first one tells that the token
        #: has ended: the next stream logs in anew, and observers hear only of a long delay.
        self._is_refused = False
        self._is_ticking = False
        self._closed = False

    def observe(self, place: Place[Any, State], news: Callable[[], None]) -> Observation[State]:
        """Observe ``place``, or what is followed already of that name: see `Observation`."""
        now = SYSTEM_CLOCK.now()
        observation: Observation[State] = Observation(
            news, lambda: self._leave(place.name, observation), now
        )
        with self._lock:
            following = self._followings.get(place.name) or Following(place, self._lock, now)
            is_shared, is_up = bool(following.observers), self._stream is not None
            is_closed = self._closed
            if not is_closed:
                if not is_shared:
                    following.begin()
                following.observers.append(observation)
                self._followings[place.name] = following
                self._start()
        if is_closed:
            observation.end(_closed(), now)
        elif is_shared:
            following.tell([observation])
        elif is_up:
            self._read(following)
        return observation

    def restart(self) -> None:
        """Open a new stream, on the endpoint that is now in use. Never blocks."""
        with self._lock:
            if self._stream is not None:
                self._stream.cancel()

    def close(self) -> None:
        """End all observations and let the threads end. Never blocks."""
        with self._lock:
            self._closed = True
            self._changed.notify()
        for following in self._all():
            self._end(following, _closed())
        self.restart()

    def join(self, timeout: float) -> None:
        """Wait for the threads' end, up to ``timeout`` seconds, and one more."""
        self._timers.close()
        if self._thread is not None:
            self._thread.join(timeout)

    def _leave(self, name: tuple[str, str], observation: Observation[Any]) -> None:
        with self._lock:
            following = self._followings.get(name)
            if following is not None and observation in following.observers:
                following.observers.remove(observation)
                if not following.observers:
                    following.left_at = SYSTEM_CLOCK.now()
                    self._linger(following)

    def _doubt(self, following: Following) -> None:
        with self._lock:
            self._stop(following)
        following.tell()

    def _end(self, following: Following, error: CoordlockError) -> None:
        with self._lock:
            self._stop(following)
            # Who comes from now on begins anew.
            if self._followings.get(following.place.name) is following:
                del self._followings[following.place.name]
        following.end(error)

    def _all(self) -> list[Following]:
        with self._lock:
            return list(self._followings.values())

    # The following four are called with the lock held.

    def _start(self) -> None:
        self._changed.notify()
        if not self._is_ticking:
            self._later(self._interval / _TICKS, self._tick)
            self._is_ticking = True
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="coordlock-etcd-observe", daemon=True)
            thread.start()
            self._thread = thread

    def _linger(self, following: Following) -> None:
        if not following.is_leaving:
            following.is_leaving = True
            self._later(_LINGERS, partial(self._part, following))

    def _watch(self, following: Following) -> None:
        if self._stream is not None:
            following.id = next(self._ids)
            self._by_id[following.id] = following
            self._stream.send(following.place.watching(following.id))

    def _stop(self, following: Following) -> None:
        if self._by_id.pop(following.id, None) is not None and self._stream is not None:
            self._stream.send(requests.unwatch(following.id))
        following.stop(self._looks.told)

    # Reading, by calls whose answers come on gRPC's threads.

    def _read(self, following: Following) -> None:
        turn = following.turn
        answer = self._limiter.submit("", partial(self._ask, following, turn))
        answer.add_done_callback(partial(self._answered, following, turn))

    def _ask(self, following: Following, turn: int) -> Promise[None]:
        if turn != following.turn:  # since it waited for its turn with others
            return resolved(None)
        seen, now = self._connection.cluster.revision, SYSTEM_CLOCK.now()
        take = partial(self._take, following, turn, seen, now)
        return self._connection.call(RANGE, following.place.reading(), take)

    def _take(
        self, following: Following, turn: int, seen: int, read_at: float, reply: pb.RangeResponse
    ) -> None:
        place, revision = following.place, reply.header.revision
        parts = place.parts(reply.kvs)
        with self._lock:
            if turn != following.turn or self._followings.get(place.name) is not following:
                return
            is_read = revision >= seen and following.read(parts, revision, read_at)  # see `data`
            if not (is_read or following.is_live):
                raise BackendUnavailable(SERVICE, "the answer is older than what was seen before")
            if not following.id:
                self._watch(following)
        if following.is_live:
            following.tell()

    def _answered(self, following: Following, turn: int, answer: Promise[None]) -> None:
        error = answer.exception()
        if error is None or turn != following.turn:
            return
        if isinstance(error, CoordlockError) and not isinstance(error, BackendUnavailable):
            self._end(following, error)
        else:
            self._later(_PAUSE, partial(self._retry, following, turn))

    def _retry(self, following: Following, turn: int) -> None:
        if turn == following.turn:
            self._read(following)

    # The thread of the stream.

    def _run(self) -> None:
        with self._lock:
            if self._thread is None:  # Ctrl-C came inside of `start`
                self._thread = threading.current_thread()
            elif self._thread is not threading.current_thread():
                return
        while self._wait_for_observers():
            try:
                self._serve()
            except CoordlockError as error:
                log.debug("etcd: the stream of observations broke: %s", error)
            except Exception:
                # Observers depend on this thread, so it goes on after any error.
                if not self._closed and can_start_threads():
                    log.exception("etcd: the stream of observations failed")
            with self._lock:
                self._changed.wait_for(lambda: self._closed, self._delay)
                self._delay = min(2 * self._delay, _BACKOFF[1])

    def _wait_for_observers(self) -> bool:
        with self._lock:
            self._changed.wait_for(lambda: self._closed or self._followings)
            return not self._closed

    def _serve(self) -> None:
        try:
            stream = self._connection.open_stream()
        except AuthenticationFailed as error:
            for following in self._all():
                self._end(following, error)
            return
        is_quiet = False
        try:
            with self._lock:
                if self._closed:
                    return
                self._stream = stream
                self._looks.restart()
                followings = self._all()
            if not stream.is_current():
                return  # `restart` came before there was a stream to cancel
            for following in followings:
                self._read(following)
            for response in stream.responses():
                self._handle(stream, response)
            raise BackendUnavailable(SERVICE, "the server ended the watch stream")
        except WatchRefused:
            is_quiet, self._is_refused = not self._is_refused, True
            if not is_quiet:
                raise
            self._delay = _BACKOFF[0]
        finally:
            with self._lock:
                self._stream = None
                followings = self._all()
                for following in followings:
                    self._stop(following)
            stream.close()
            if is_quiet:
                self._later(self._interval, self._tell_delay)
            else:
                for following in followings:
                    following.tell()

    def _handle(self, stream: Stream, response: pb.WatchResponse) -> None:
        if response.watch_id == _ALL:
            self._looks.progressed(response.header.revision)
            return
        with self._lock:
            following = self._by_id.get(response.watch_id)
            if following is None:
                return  # cancelled meanwhile
            is_new = following.take(response)
        if response.created:
            self._is_refused, self._delay = False, _BACKOFF[0]
        if response.events:
            self._connection.cluster.saw(response.events[-1].kv.mod_revision)
        if response.canceled:  # because its history is compacted, as a rule
            self._doubt(following)
            pause = 0.0 if response.compact_revision else _PAUSE
            self._later(pause, partial(self._retry, following, following.turn))
        elif is_new:
            following.tell()

    # The timers' thread.

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        with suppress(ClientClosed):
            self._timers.call_at(SYSTEM_CLOCK.now() + seconds, action)

    def _part(self, following: Following) -> None:
        """Drop a place that has had no observer for long enough."""
        with self._lock:
            following.is_leaving = False
            if following.observers or self._followings.get(following.place.name) is not following:
                return
            if SYSTEM_CLOCK.now() - following.left_at < _LINGERS:
                self._linger(following)  # an observer came and left meanwhile
                return
            del self._followings[following.place.name]
            self._stop(following)

    def _tell_delay(self) -> None:
        """Tell that places are in doubt that have been so since their token ended."""
        for following in self._all():
            if not following.is_live:
                following.tell()

    def _tick(self) -> None:
        with self._lock:
            if self._closed or not self._followings:
                self._is_ticking = False
                return
            self._later(self._interval / _TICKS, self._tick)
            # Of a place that was read the right to read it is known.
            stream, some = self._stream, max(self._followings.values(), key=lambda one: one.is_live)
        if stream is not None and self._looks.go_on(stream, some.place.key):
            self._read_again()

    def _read_again(self) -> None:
        """Read places whose last reading is long ago, but only a part of all at a time."""
        now = SYSTEM_CLOCK.now()
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


def _closed() -> BackendUnavailable:
    return BackendUnavailable(SERVICE, "the client is closed")
