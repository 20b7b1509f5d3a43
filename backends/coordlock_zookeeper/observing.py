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

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, Final

from kazoo.protocol.serialization import Exists, GetChildren2, GetData, Sync, Transaction
from kazoo.protocol.states import EventType

from coordlock.backend import Observation, Queue
from coordlock.backend.observers import Observers
from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    ClientClosed,
    SessionLost,
)
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.data import explained
from coordlock_zookeeper.data_session import DataSession
from coordlock_zookeeper.errors import SERVICE
from coordlock_zookeeper.nodes import Layout
from coordlock_zookeeper.places import FolderPlace, KeyPlace, Place, QueuePlace, Reading
from coordlock_zookeeper.requests import Answer, Requests
from coordlock_zookeeper.session import ZookeeperSession

__all__ = ["Observations"]

#: Seconds between attempts to open a session: the first doubles up to the last.
_BACKOFF: Final = (0.1, 2.0)
#: Seconds after which a place is read again that could not be read.
REREAD_DELAY_S: Final = 0.2
#: In which part of the time-to-live a probe is due, and must be answered.
_PROBES: Final = 3


class Observations:
    """The observations of one client. The worker of its `DataSession` does all work."""

    def __init__(self, layout: Layout, data_session: DataSession, timers: Timers) -> None:
        self._layout: Final = layout
        self._data_session: Final = data_session
        data_session.listener = self
        self._timers = timers
        self._now = timers.clock.now
        self._observers = Observers(self, timers.clock, threading.RLock(), self._known_at)
        #: What is observed.
        self._places: dict[Queue | str, Place[Any]] = {}
        #: All that is read, by the paths of the nodes.
        self._at: dict[str, list[Place[Any]]] = {}
        #: While there is a connection.
        self._session: ZookeeperSession | None = None
        #: Counts connections: answers to probes of earlier ones are too late.
        self._connection = 0
        #: Seconds between probes.
        self._interval = 0.0
        self._last_probe = 0.0
        self._is_probing = False
        #: When the last probes were sent that were answered, by whichever server, and their
        #: transactions: all that had happened when a probe was sent has smaller numbers.
        self._probes: deque[tuple[float, int]] = deque(maxlen=2)
        #: Whether nothing is read until a probe is answered.
        self._is_silent = False
        self._is_ticking = False
        self._is_opening = False
        self._delay = _BACKOFF[0]
        self._is_closed = False

    def observe(self, where: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        """Observe a queue, a key or a folder: see `Observation`."""

        def read() -> Promise[Any]:
            state: Promise[Any] = Promise()
            self._do(self._want, where, state)
            return state

        return self._observers.observe(where, read, news)

    def read(self, where: str) -> Promise[Any]:
        """The state of a key or a folder at one moment from now on."""
        state: Promise[Any] = Promise()
        opened = self._data_session.session()
        opened.add_done_callback(partial(self._do, self._read, where, state))
        return state

    # See `Reporter`

    def report(self, place: Queue | str) -> bool:
        self._do(self._join, place)
        return False

    def unreport(self, place: Queue | str) -> None:
        self._do(self._leave, place)

    def pause(self) -> Promise[None]:
        return sleep(self._timers, self._timers.jitter(REREAD_DELAY_S))

    def _known_at(self, where: Queue | str) -> float:
        place = self._places.get(where)
        return self._now() if place is None else place.known_at

    # See `ConnectionListener`

    def connected(self, session: ZookeeperSession) -> None:
        self._session, self._interval = session, session.ttl() / _PROBES
        self._connection += 1
        self._is_probing = self._is_silent = False
        self._delay = _BACKOFF[0]
        if self._places:
            self._probe()
        self._go_on_all()

    def disconnected(self) -> None:
        self._session = None
        self._connection += 1
        self._doubt_all()

    def lost(self) -> None:
        self.disconnected()
        self._later(self._timers.jitter(self._delay), self._open)

    def closed(self, error: BackendUnavailable) -> None:
        self._is_closed, self._session = True, None
        self._restart_all()
        self._observers.close(error)

    # What is read

    def _join(self, where: Queue | str) -> None:
        self._places[where] = self._add(where, where)
        self._open()
        self._probe()
        if self._session is not None and not self._is_silent:
            self._observers.live(where)

    def _leave(self, where: Queue | str) -> None:
        self._forget(self._places.pop(where))

    def _add(self, where: Queue | str, observed: Queue | str | None = None) -> Place[Any]:
        place: Place[Any]
        if isinstance(where, Queue):
            place = QueuePlace(where.name, self._layout)
        else:
            place = (FolderPlace if where.endswith("/") else KeyPlace)(where)
        place.observed, place.known_at = observed, self._now()
        self._at.setdefault(place.path, []).append(place)
        return place

    def _forget(self, place: Place[Any]) -> None:
        self._restart(place, BackendUnavailable(SERVICE, "nothing observes it any more"))
        here = self._at[place.path]
        here.remove(place)
        if not here:
            del self._at[place.path]

    def _want(self, where: Queue | str, state: Promise[Any]) -> None:
        if (place := self._places.get(where)) is None:
            state.fail(BackendUnavailable(SERVICE, "nothing observes it any more"))
        else:
            place.wanted.append(state)
            self._settle(place)
            self._go_on(place)

    def _read(self, where: str, state: Promise[Any], opened: Promise[ZookeeperSession]) -> None:
        def synced(answer: Promise[Answer]) -> None:
            if (error := answer.exception()) is not None:
                state.fail(error)

        if (error := opened.exception()) is not None:
            state.fail(error)
        elif self._session is None:
            state.fail(BackendUnavailable(SERVICE, "the connection was lost"))
        else:
            place = self._add(where)
            place.wanted.append(state)
            state.add_done_callback(lambda _: self._forget(place))
            # So that the server then shows all that was acknowledged before.
            requests = self._session.requests
            self._ask(requests, requests.made(Sync, "/"), synced)
            self._go_on(place)

    # Reading

    def _all(self) -> list[Place[Any]]:
        return [place for places in self._at.values() for place in places]

    def _go_on_all(self) -> None:
        for where in tuple(self._places):
            self._observers.live(where)
        for place in self._all():
            self._go_on(place)

    def _restart_all(self) -> None:
        for place in self._all():
            self._restart(place, BackendUnavailable(SERVICE, "the connection was lost"))

    def _restart(self, place: Place[Any], error: BackendError) -> None:
        """Read all of it anew; answers under way are too late."""
        place.restart()
        for state in place.take_wanted():
            state.fail(copy(error))

    def _go_on(self, place: Place[Any]) -> None:
        """Send the next round of requests, if it is time to.

        A single reading is sent on a silent connection, too. Without an observer, no later probe
        would end the silence.
        """
        if (session := self._session) is None or (self._is_silent and place.observed is not None):
            return
        for reading in place.next_round():
            request = _request(session.requests, reading, self._fired)
            take = partial(self._take, place, place.generation, reading)
            self._ask(session.requests, request, take)

    def _ask(
        self, requests: Requests, request: Any, take: Callable[[Promise[Answer]], None]
    ) -> None:
        """Send ``request``, and have the worker take the answer in its order among the events."""

        def answered(answer: Promise[Answer]) -> None:
            requests.after_events(self._do, take, answer)

        requests.send(request, answered)

    def _take(
        self, place: Place[Any], generation: int, reading: Reading, answer: Promise[Answer]
    ) -> None:
        if generation != place.generation:
            return
        error = answer.exception()
        if error is None:
            place.take(reading, *answer.result())
            if place.advance() and not place.wanted and place.observed is not None:
                self._observers.changed(place.observed)
            self._settle(place)
            if generation == place.generation:
                self._go_on(place)
            return
        assert isinstance(error, BackendError)
        passes = isinstance(error, (BackendUnavailable, SessionLost))
        error = (
            BackendUnavailable(SERVICE, error.reason) if passes else explained(reading.path, error)
        )
        # Where no state is awaited, no promise brings the error to the observers.
        where = None if place.wanted else place.observed
        self._restart(place, error)
        if where is not None and passes:
            self._later(REREAD_DELAY_S, partial(self._observers.changed, where))
        elif where is not None:
            self._observers.end(error, where)

    def _settle(self, place: Place[Any]) -> None:
        """Show the state that is proven, if it is new. It is as new as a probe that it includes."""
        if place.wanted and (place.is_new or place.is_complete):
            place.is_new = False
            for sent, zxid in self._probes:
                if zxid <= place.state.revision:
                    place.known_at = max(place.known_at, sent)
            for state in place.take_wanted():
                state.resolve(place.state)

    def _fired(self, event: Any) -> None:
        # In kazoo's thread for events. After a disconnect it calls without a path. Watches can't be
        # taken back: those of a given client may still fire when nobody observes any more.
        if event.type != EventType.NONE and self._at:
            self._do(self._changed, event.type, event.path)

    def _changed(self, kind: str, path: str) -> None:
        above = path.rpartition("/")[0] or "/"
        for place in (*self._at.get(path, ()), *self._at.get(above, ())):
            place.fired(kind, path)
            self._go_on(place)
            if place.observed is not None:
                self._observers.changed(place.observed)

    # Doubts

    def _doubt_all(self) -> None:
        self._is_silent = True
        self._restart_all()
        self._observers.gap()

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
        self._probes.append((sent, answer.result()[1]))
        # It was answered behind the events of all earlier changes. What these have changed may have
        # yet to be read: then what is shown is as old as before. It is in doubt if it shows nothing
        # from after the probe before the last one: it changes faster than it is read.
        for where, place in tuple(self._places.items()):
            if place.is_complete:
                place.known_at = sent
            elif place.known_at <= sent - 2 * self._interval:
                self._observers.gap(0.0, where, is_over=True)
        if self._is_silent:
            self._is_silent = False
            self._go_on_all()

    def _tick(self) -> None:
        if self._session is None or not self._places:
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
        """Have a session, if something is observed."""
        if self._session is None and self._places and not self._is_opening:
            self._is_opening = True
            opened = self._data_session.session()
            opened.add_done_callback(lambda answer: self._do(self._opened, answer.exception()))

    def _opened(self, error: BaseException | None) -> None:
        self._is_opening = False
        if isinstance(error, AuthenticationFailed):
            self._observers.end(error)
        elif error is not None:
            self._later(self._timers.jitter(self._delay), self._open)
            self._delay = min(2 * self._delay, _BACKOFF[1])

    def _do(self, action: Callable[..., None], *arguments: Any) -> None:
        self._data_session.worker.run(partial(action, *arguments))

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def due() -> None:
            if not self._is_closed:
                self._do(action)

        with suppress(ClientClosed):
            self._timers.call_at(self._now() + seconds, due)


def _request(requests: Requests, reading: Reading, fired: Callable[[Any], None]) -> Any:
    kinds = {"data": GetData, "children": GetChildren2, "existence": Exists}
    return requests.made(kinds[reading.kind], reading.path, fired)
