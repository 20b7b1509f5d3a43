"""Observations: one stream carries the watches of all places, and is reopened when it breaks.

A place is read at one revision, and its watch tells what comes after that. Whatever may have hidden
an event puts the place in doubt, and it is read anew: a broken stream, a watch that the server has
ended, as after a compaction. A state is shown once the watch behind it is known to be there.

How long ago all was certainly told. Silence says nothing: the connection may be cut off, or the
member, or it may lag. So now and then the client looks: it reads a key, linearizable, which takes
the answering member to the present, and then asks for progress on the stream, which the same member
tells when its watches are there, too. A look that is not answered breaks the stream. Servers have
told progress a moment before the events that led to it (etcd #15220). So a look proves that all was
told that had happened by the look before.

Since servers have lost watch events, each place is also read about once a minute.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from coordlock.backend import Listing, Observation
from coordlock.errors import (
    AuthenticationFailed,
    BackendUnavailable,
    ClientClosed,
    CoordlockError,
)
from coordlock.log import Log
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import SYSTEM_CLOCK, SystemTimers
from coordlock.runtime.promise import Promise, resolved
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE
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
#: Into how many parts the places are divided that are read again, and the time in which they are.
_PARTS: Final = 12
#: So many places are read at a time.
_READINGS: Final = 16
#: So often, within the time for a look, the client sees how the look is getting on.
_TICKS: Final = 4
#: The id of responses that concern all watches of a stream.
_ALL: Final = -1


@dataclass(eq=False, slots=True)
class _Following:
    """A place, and those who observe it.

    Attributes:
        since: a moment at which all was told, while the place is in doubt.
        read_at: when its last reading was sent.
        id: its watch on the stream that is open; 0 for none.
        is_live: whether changes come as they happen.
        turn: counts when the place came to be in doubt, and when that was over.
    """

    place: Place[Any, Any]
    since: float
    read_at: float = 0.0
    id: int = 0
    is_live: bool = False
    turn: int = 0
    observers: list[Observation[Any]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Look:
    """When it began, the revision that it found, 0 before, and whether all was told up to that."""

    began: float
    revision: int = 0
    is_done: bool = False


class Observations:
    """The observations of one client. Its threads start with the first observation.

    Args:
        interval: seconds between looks, and within which each is to be answered.
    """

    def __init__(self, connection: Connection, interval: float) -> None:
        self._connection = connection
        self._interval = interval
        self._timers = SystemTimers("coordlock-etcd-look")
        self._limiter: Limiter[None] = Limiter(_READINGS)
        # Entered by the plain lock: Ctrl-C in `Condition.__enter__` would leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        #: By name, the place first that was read first.
        self._followings: dict[tuple[str, str], _Following] = {}
        self._by_id: dict[int, _Following] = {}
        self._ids = itertools.count(1)
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self._delay = _BACKOFF[0]
        #: Whether the last answer to a new watch was a refusal.
        self._is_refused = False
        self._is_ticking = False
        #: The newest look on this stream, and when the last one began that is done.
        self._look: _Look | None = None
        self._looked = 0.0
        #: When all was certainly told, by looks.
        self._told = 0.0
        self._closed = False

    def observe(self, place: Place[Any, State], news: Callable[[], None]) -> Observation[State]:
        """Observe ``place``, or what is observed already of that name: see `Observation`."""
        now = SYSTEM_CLOCK.now()
        observation: Observation[State] = Observation(
            news, lambda: self._leave(place.name, observation), now
        )
        with self._lock:
            if is_closed := self._closed:
                following, is_up = _Following(place, now), False
            else:
                following = self._followings.setdefault(place.name, _Following(place, now))
                is_up = self._stream is not None
                following.observers.append(observation)
                self._start()
            is_first = len(following.observers) == 1
        if is_closed:
            observation.end(_closed(), now)
        elif not is_first:
            self._tell(following, [observation])
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
            followings = list(self._followings.values())
        for following in followings:
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
            if following is None or observation not in following.observers:
                return
            following.observers.remove(observation)
            if not following.observers:
                del self._followings[name]
                self._unwatch(following)

    # What observers are told, by any thread and without the lock.

    def _tell(self, following: _Following, observers: Sequence[Observation[Any]] = ()) -> None:
        """Show the newest state, or that it is in doubt, to ``observers``, or all of them.

        Told again if it has changed meanwhile: what another thread tells may have come between.
        """
        turn = -1
        while turn != following.turn:
            with self._lock:
                turn, since = following.turn, following.since
                state = following.place.state if following.is_live else None
                told = observers or following.observers.copy()
            for observation in told:
                try:
                    if state is None:
                        observation.doubt(since)
                    else:
                        observation.show(state)
                except Exception:
                    log.exception("etcd: the callback of an observation failed")

    def _doubt(self, following: _Following) -> None:
        with self._lock:
            self._unwatch(following)
            following.place.restart()
            if following.is_live:
                following.since = self._certain(following)
                following.is_live = False
            following.turn += 1
        self._tell(following)

    def _end(self, following: _Following, error: CoordlockError) -> None:
        with self._lock:
            since = self._certain(following) if following.is_live else following.since
            # Who comes from now on begins anew.
            if self._followings.get(following.place.name) is following:
                del self._followings[following.place.name]
            self._unwatch(following)
            observers, following.observers = following.observers, []
        for observation in observers:
            try:
                observation.end(error, since)
            except Exception:
                log.exception("etcd: the callback of an observation failed")

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

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        with suppress(ClientClosed):
            self._timers.call_at(SYSTEM_CLOCK.now() + seconds, action)

    def _unwatch(self, following: _Following) -> None:
        if self._by_id.pop(following.id, None) is not None and self._stream is not None:
            self._stream.send(requests.unwatch(following.id))
        following.id = 0

    def _certain(self, following: _Following) -> float:
        """The last moment at which all was certainly told of a live place."""
        return max(following.read_at, self._told)

    # Reading, by calls whose answers come on gRPC's threads.

    def _read(self, following: _Following) -> None:
        turn = following.turn
        answer = self._limiter.submit("", partial(self._ask, following, turn))
        answer.add_done_callback(partial(self._asked, following, turn))

    def _ask(self, following: _Following, turn: int) -> Promise[None]:
        if turn != following.turn or not following.observers:
            return resolved(None)
        seen, now = self._connection.cluster.revision, SYSTEM_CLOCK.now()
        taken = partial(self._taken, following, turn, seen, now)
        return self._connection.call(RANGE, following.place.reading(), taken)

    def _taken(
        self,
        following: _Following,
        turn: int,
        seen: int,
        read_at: float,
        reply: pb.RangeResponse,
    ) -> None:
        revision = reply.header.revision
        if revision < seen:  # see `data`
            raise _older()
        place = following.place
        parts = place.parts(reply.kvs)
        with self._lock:
            if turn != following.turn or not following.observers:
                return
            if place.read(parts, revision):
                following.read_at = read_at
            elif not following.is_live:
                raise _older()
            if not following.id and self._stream is not None:
                following.id = next(self._ids)
                self._by_id[following.id] = following
                self._stream.send(place.watching(following.id))
            is_live = following.is_live
        if is_live:
            self._tell(following)

    def _asked(self, following: _Following, turn: int, answer: Promise[None]) -> None:
        error = answer.exception()
        if error is None or turn != following.turn:
            return
        if isinstance(error, CoordlockError) and not isinstance(error, BackendUnavailable):
            self._end(following, error)
            return

        def again() -> None:
            if turn == following.turn:
                self._read(following)

        self._later(_PAUSE, again)

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
        try:
            with self._lock:
                if self._closed:
                    return
                self._stream = stream
                self._look, self._looked = None, 0.0
                followings = self._all()
            if not stream.is_current():
                return  # `restart` came before there was a stream to cancel
            for following in followings:
                self._read(following)
            for response in stream.responses():
                self._handle(stream, response)
            raise BackendUnavailable(SERVICE, "the server ended the watch stream")
        finally:
            with self._lock:
                self._stream = None
                followings = self._all()
            stream.close()
            for following in followings:
                self._doubt(following)

    def _all(self) -> list[_Following]:
        with self._lock:
            return list(self._followings.values())

    def _handle(self, stream: Stream, response: pb.WatchResponse) -> None:
        if response.created and response.canceled:
            # With a token that has ended: the reading, which had the right to it, has logged in anew
            # perhaps. The next stream is to have that token while it is good.
            stream.refuse_token()
            if not self._is_refused:
                self._is_refused, self._delay = True, _BACKOFF[0]
            raise BackendUnavailable(SERVICE, response.cancel_reason or "the watch was refused")
        if response.watch_id == _ALL:
            self._progressed(response.header.revision)
            return
        with self._lock:
            following = self._by_id.get(response.watch_id)
            if following is None:
                return  # cancelled meanwhile
            is_new = following.place.apply(response)
            if response.created:
                self._is_refused, self._delay = False, _BACKOFF[0]
                following.is_live = is_new = True
                following.turn += 1
        if response.canceled:  # its history is compacted, as a rule
            self._doubt(following)
            self._later(0 if response.compact_revision else _PAUSE, partial(self._read, following))
        elif is_new:
            if response.events:
                self._connection.cluster.saw(response.events[-1].kv.mod_revision)
            self._tell(following)

    # Looks, by the timers' thread.

    def _tick(self) -> None:
        now = SYSTEM_CLOCK.now()
        with self._lock:
            if self._closed or not self._followings:
                self._is_ticking = False
                return
            self._later(self._interval / _TICKS, self._tick)
            stream, look = self._stream, self._look
            is_due = look is None or now - look.began >= self._interval
            if stream is None:
                return
            if not is_due:
                if look is not None and look.revision and not look.is_done:
                    # A server doesn't answer while a watch of the stream catches up.
                    stream.send(_progress())
                return
            if look is not None and not look.is_done:
                stream.cancel()
                return
            look = self._look = _Look(now)
            some = next(iter(self._followings.values()))
        self._begin(stream, look, some)
        self._read_again(now)

    def _begin(self, stream: Stream, look: _Look, some: _Following) -> None:
        def seen(reply: pb.RangeResponse) -> None:
            with self._lock:
                if look is self._look:
                    look.revision = reply.header.revision
                    stream.send(_progress())

        def answered(answer: Promise[None]) -> None:
            if answer.exception() is not None:
                stream.cancel()

        request = pb.RangeRequest(key=some.place.key, keys_only=True)
        timeout = min(self._connection.timeout, self._interval)
        answer = self._connection.call(RANGE, request, seen, timeout=timeout)
        answer.add_done_callback(answered)

    def _progressed(self, revision: int) -> None:
        with self._lock:
            look = self._look
            if look is not None and not look.is_done and 0 < look.revision <= revision:
                look.is_done = True
                self._told, self._looked = max(self._told, self._looked), look.began

    def _read_again(self, now: float) -> None:
        """Read places whose last reading is long ago, but only a part of all at a time."""
        with self._lock:
            most = len(self._followings) // _PARTS + 1
            live = (one for one in self._followings.values() if one.is_live)
            due = (one for one in live if now - one.read_at >= _REREAD)
            again = list(itertools.islice(due, most))
            for following in again:
                self._followings[following.place.name] = self._followings.pop(following.place.name)
        for following in again:
            self._read(following)


def _progress() -> pb.WatchRequest:
    return pb.WatchRequest(progress_request=pb.WatchProgressRequest())


def _older() -> BackendUnavailable:
    return BackendUnavailable(SERVICE, "the answer is older than what was seen before")


def _closed() -> BackendUnavailable:
    return BackendUnavailable(SERVICE, "the client is closed")
