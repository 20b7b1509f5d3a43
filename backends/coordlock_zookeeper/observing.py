"""Observations of data and queues: when a place is read, and when its state is in doubt.

Each place is read by requests that leave watches, until it is complete, and a state is shown
whenever answers prove one: see `places`. A change costs an event and the reading of what has
changed. A connection that is lost or silent may have hidden changes: then all places are in doubt,
and are read anew.

Silence alone proves nothing: a connection on which nothing comes looks the same whether nothing
changes, the server lags or nobody is there. So the client sends a *probe* now and then: a
transaction that does nothing. A majority agrees on it, the server answers when it has come that
far, and the answer comes behind the events of all earlier changes. So once it is answered, all that
had happened when it was sent has been told. (`sync` would cost the servers less. But a leader that
was replaced without knowing it yet answers that, too.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.protocol.serialization import Exists, GetChildren2, GetData, Sync, Transaction
from kazoo.protocol.states import EventType

from coordlock.backend import Listing, Observation
from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    ClientClosed,
    CoordlockError,
    SessionLost,
)
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import Timers
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.data import explained
from coordlock_zookeeper.data_session import DataSession
from coordlock_zookeeper.errors import SERVICE
from coordlock_zookeeper.following import Following, Probe
from coordlock_zookeeper.places import Place, Reading
from coordlock_zookeeper.requests import Answer, Requests
from coordlock_zookeeper.session import ZookeeperSession

__all__ = ["Observations"]

State = TypeVar("State", Snapshot, Listing)

#: Seconds between attempts to open a session: the first doubles up to the last.
_BACKOFF: Final = (0.1, 2.0)
#: Seconds after which a place is read again that could not be read.
_PAUSE: Final = 0.2
#: In which part of the time-to-live a probe is due, and must be answered.
_PROBES: Final = 3


class Observations:
    """The observations of one client. The worker of its `DataSession` does all work."""

    def __init__(self, data_session: DataSession, timers: Timers) -> None:
        self._data_session: Final = data_session
        data_session.listener = self
        self._timers = timers
        self._now = timers.clock.now
        self._followings: dict[object, Following] = {}
        #: The same, by the paths of their nodes.
        self._at: dict[str, list[Following]] = {}
        #: While there is a connection.
        self._session: ZookeeperSession | None = None
        #: Counts connections: answers to probes of earlier ones are too late.
        self._connection = 0
        #: Seconds between probes.
        self._interval = 0.0
        self._last_probe = 0.0
        self._is_probing = False
        #: The last probes that were answered, by whichever server.
        self._probes: deque[Probe] = deque(maxlen=2)
        #: Whether nothing is read until a probe is answered.
        self._is_silent = False
        self._is_ticking = False
        self._is_opening = False
        self._delay = _BACKOFF[0]
        self._closed: BackendUnavailable | None = None

    def observe(self, place: Place[State], news: Callable[[], None]) -> Observation[State]:
        """Observe ``place``, or what is followed already of that name: see `Observation`."""
        observation: Observation[State] = Observation(
            news, lambda: self._do(self._leave, place.name, observation), self._now()
        )
        self._do(self._join, place, observation)
        return observation

    def read(self, place: Place[State]) -> Promise[State]:
        """The state of ``place`` at one moment from now on."""
        promise: Promise[State] = Promise()
        opened = self._data_session.session()
        opened.add_done_callback(partial(self._do, self._read, place, promise))
        return promise

    # See `ConnectionListener`

    def connected(self, session: ZookeeperSession) -> None:
        self._session, self._interval = session, session.ttl() / _PROBES
        self._connection += 1
        self._is_probing = self._is_silent = False
        self._delay = _BACKOFF[0]
        self._begin_all()

    def disconnected(self) -> None:
        self._session = None
        self._connection += 1
        self._doubt_all()

    def lost(self) -> None:
        self._later(self._delay, self._open)

    def closed(self, error: BackendUnavailable) -> None:
        self._closed, self._session = error, None
        self._end_all(error)

    # Who observes

    def _join(self, place: Place[Any], observation: Observation[Any]) -> None:
        if self._closed is not None:
            observation.end(self._closed, self._now())
        elif (following := self._followings.get(place.name)) is not None:
            following.source.observers.append(observation)
            following.source.tell(observation)
        else:
            following = Following(place.name, place, self._now())
            following.source.observers.append(observation)
            self._add(following)
            self._open()
            self._probe()
            self._begin(following)

    def _add(self, following: Following) -> None:
        self._followings[following.name] = following
        self._at.setdefault(following.place.path, []).append(following)

    def _leave(self, name: object, observation: Observation[Any]) -> None:
        following = self._followings.get(name)
        if following is not None and following.source.leave(observation):
            self._forget(following)

    def _drop(self, following: Following) -> None:
        if self._followings.get(following.name) is following:
            self._forget(following)

    def _forget(self, following: Following) -> None:
        following.begin()  # answers under way come too late
        del self._followings[following.name]
        here = self._at[following.place.path]
        here.remove(following)
        if not here:
            del self._at[following.place.path]

    def _end(self, following: Following, error: CoordlockError) -> None:
        self._forget(following)  # whoever observes from now on begins anew
        following.end(error)

    def _end_all(self, error: CoordlockError) -> None:
        for following in list(self._followings.values()):
            self._end(following, error)

    def _read(
        self, place: Place[Any], promise: Promise[Any], opened: Promise[ZookeeperSession]
    ) -> None:
        def synced(answer: Promise[Answer]) -> None:
            if (error := answer.exception()) is not None:
                promise.fail(error)

        if (error := opened.exception()) is not None:
            promise.fail(error)
        elif self._session is None:
            promise.fail(BackendUnavailable(SERVICE, "the connection was lost"))
        else:
            following = Following(promise, place, self._now(), promise)
            self._add(following)
            promise.add_done_callback(lambda _: self._do(self._drop, following))
            # So that the server then shows all that was acknowledged before.
            requests = self._session.requests
            self._ask(requests, requests.made(Sync, "/"), synced)
            self._begin(following)

    # Reading

    def _begin_all(self) -> None:
        if self._followings:
            self._probe()
        for following in list(self._followings.values()):
            self._begin(following)

    def _begin(self, following: Following) -> None:
        following.begin()
        self._go_on(following)

    def _go_on(self, following: Following) -> None:
        """Send the next round of requests, if it is time to."""
        if (session := self._session) is not None and not self._is_silent:
            for reading in following.place.next_round():
                request = _request(session.requests, reading, self._fired)
                take = partial(self._take, following, following.generation, reading)
                self._ask(session.requests, request, take)

    def _ask(
        self, requests: Requests, request: Any, take: Callable[[Promise[Answer]], None]
    ) -> None:
        """Send ``request``, and have the worker take the answer in its order among the events."""

        def answered(answer: Promise[Answer]) -> None:
            if isinstance(request, _GetData):
                request.is_absent = answer.exception() is None and answer.result()[0] is None
            requests.after_events(self._do, take, answer)

        requests.send(request, answered)

    def _take(
        self, following: Following, generation: int, reading: Reading, answer: Promise[Answer]
    ) -> None:
        if generation != following.generation:
            return
        error = answer.exception()
        if error is None:
            following.place.take(reading, *answer.result())
            if (state := following.place.advance()) is None:
                self._go_on(following)
            else:
                following.show(state, self._probes)
                # After a reader, which needs no more, has left.
                self._do(self._retry, following, generation)
        elif isinstance(error, (BackendUnavailable, SessionLost)):
            following.begin()
            self._later(_PAUSE, partial(self._retry, following, following.generation))
        else:
            assert isinstance(error, BackendError)
            self._end(following, explained(reading.path, error))

    def _retry(self, following: Following, generation: int) -> None:
        if generation == following.generation:
            self._go_on(following)

    def _fired(self, event: Any) -> None:
        # In kazoo's thread for events. After a disconnect it calls without a path. Watches can't be
        # taken back: those of a given client may still fire when nobody observes any more.
        if event.type != EventType.NONE and self._at:
            self._do(self._changed, event.type, event.path)

    def _changed(self, kind: str, path: str) -> None:
        above = path.rpartition("/")[0] or "/"
        for following in (*self._at.get(path, ()), *self._at.get(above, ())):
            following.place.fired(kind, path)
            self._go_on(following)

    # Doubts

    def _doubt_all(self) -> None:
        self._is_silent = True
        for following in list(self._followings.values()):
            following.doubt()

    def _probe(self) -> None:
        if self._session is None:
            return
        if not self._is_ticking:
            self._is_ticking = True
            self._later(self._interval, self._tick)
        if not self._is_probing:
            self._is_probing = True
            self._last_probe = sent = self._now()
            answered = partial(self._probed, self._connection, sent)
            self._ask(self._session.requests, Transaction([]), answered)

    def _probed(self, connection: int, sent: float, answer: Promise[Answer]) -> None:
        if connection != self._connection:
            return
        self._is_probing = False
        if answer.exception() is not None:
            self._doubt_all()  # the next probe may be answered
            return
        self._probes.append(Probe(sent, answer.result()[1]))
        for following in self._followings.values():
            following.probed(sent, sent - 2 * self._interval)
        if self._is_silent:
            self._is_silent = False
            self._begin_all()

    def _tick(self) -> None:
        if self._session is None or not self._followings:
            self._is_ticking = False
            return
        left = self._last_probe + self._interval - self._now()
        if left <= 0:
            left = self._interval
            if self._is_probing and not self._is_silent:
                self._doubt_all()
            self._probe()
        self._later(left, self._tick)

    # Sessions

    def _open(self) -> None:
        """Have a session, if somebody observes."""
        if self._session is None and self._followings and not self._is_opening:
            self._is_opening = True
            opened = self._data_session.session()
            opened.add_done_callback(lambda answer: self._do(self._opened, answer.exception()))

    def _opened(self, error: BaseException | None) -> None:
        self._is_opening = False
        if isinstance(error, AuthenticationFailed):
            self._end_all(error)
        elif error is not None:
            self._later(self._delay, self._open)
            self._delay = min(2 * self._delay, _BACKOFF[1])

    def _do(self, action: Callable[..., None], *arguments: Any) -> None:
        self._data_session.worker.run(partial(action, *arguments))

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def due() -> None:
            if self._closed is None:
                self._do(action)

        with suppress(ClientClosed):
            self._timers.call_at(self._now() + seconds, due)


def _request(requests: Requests, reading: Reading, fired: Callable[[Any], None]) -> Any:
    kinds = {"data": _GetData, "children": GetChildren2, "existence": Exists}
    return requests.made(kinds[reading.kind], reading.path, fired)


class _GetData(GetData):  # type: ignore[misc]
    """A request that leaves no watch on a node that is not there, as the server does not either.

    kazoo would keep such a watch as long as the connection lasts.
    """

    is_absent = False

    @property
    def watcher(self) -> object:
        """What kazoo calls when the watch fires; it asks for that after the answer has come."""
        return None if self.is_absent else self[1]
