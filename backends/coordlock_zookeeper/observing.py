"""Observations of data and queues: when a place is read, and when its state is in doubt.

Each place is read by rounds of requests that leave watches, until the answers prove a state: see
`places`. A change costs an event and the reading of what has changed. A connection that is lost or
silent may have hidden changes: then all places are in doubt, and are read anew.

Silence alone proves nothing: a connection on which nothing comes looks the same whether nothing
changes, the server lags or nobody is there. So the client sends a *probe* now and then: a
transaction that does nothing. A majority agrees on it, the server answers when it has come that
far, and the answer comes behind the events of all earlier changes. So once it is answered, all that
had happened when it was sent has been told. (`sync` would cost the servers less. But a leader that
was replaced without knowing it yet answers that, too.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kazoo.protocol.serialization import Exists, GetChildren2, GetData, Sync, Transaction
from kazoo.protocol.states import EventType

from coordlock.backend import Observation, Queue
from coordlock.backend.observers import Observers
from coordlock.errors import BackendUnavailable
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, all_of, settled
from coordlock_zookeeper.data_session import DataSession
from coordlock_zookeeper.errors import SERVICE, closed
from coordlock_zookeeper.nodes import Layout
from coordlock_zookeeper.places import Place, QueuePlace
from coordlock_zookeeper.requests import Answer, Requests
from coordlock_zookeeper.session import ZookeeperSession

__all__ = ["Observations"]

#: A place that the client could not read is read again within so many seconds, and at once when
#: the connection is back.
_REREAD_DELAY_S: Final = 1.0
#: In which part of the time-to-live a probe is due, and must be answered.
_PROBES: Final = 3
_KINDS: Final = {"data": GetData, "children": GetChildren2, "existence": Exists}


class Observations:
    """The observations of one client. Answers and events are taken in the order in which they came.

    So an answer is taken in the thread that gets it, and not where its reading goes on.
    """

    def __init__(self, layout: Layout, data_session: DataSession, timers: Timers) -> None:
        self._layout: Final = layout
        self._data_session: Final = data_session
        data_session.on_break = self._doubt
        self._timers = timers
        self._now = timers.clock.now
        self._lock: Final = threading.RLock()
        #: What is observed, and until when all changes are certainly in what was shown.
        self._known_at: dict[Queue | str, float] = {}
        self._observers = Observers(self, timers.clock, self._lock, self._known_at.__getitem__)
        #: All that is read: what is observed, and under other keys what is read once.
        self._places: dict[object, Place] = {}
        #: The session that is probed.
        self._probed: ZookeeperSession | None = None
        #: When the last probe was sent that was answered, by whichever server, and its transaction:
        #: all that had happened when it was sent has smaller numbers.
        self._last_probe = (0.0, 0)

    def observe(self, where: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        """Observe a queue, a key or a folder: see `Observation`."""
        read = partial(self._data_session.submit, partial(self._read_observed, where))
        return self._observers.observe(where, read, news)

    def read(self, where: str) -> Promise[Any]:
        """The state of a key or a folder at one moment from now on."""
        return self._data_session.submit(partial(self._read_once, where))

    def close(self) -> None:
        """End all observations."""
        self._observers.close(closed())

    # See `Reporter`

    def report(self, place: Queue | str) -> bool:
        self._known_at[place] = self._now()
        return True  # a reading leaves watches

    def unreport(self, place: Queue | str) -> None:
        del self._known_at[place]
        self._places.pop(place, None)

    def pause(self) -> Promise[None]:
        return sleep(self._timers, self._timers.jitter(_REREAD_DELAY_S))

    # Reading

    def _read_once(self, where: str, session: ZookeeperSession) -> Steps[Any]:
        key, place = object(), self._place(where)
        with self._lock:
            self._places[key] = place
        try:
            # First, so that the server then shows all that was acknowledged before.
            synced = session.requests.ask(Sync, "/")
            while not (yield from self._round(key, place, session.requests)):
                pass
            yield synced
            return place.state
        finally:
            self._forget(key, place)

    def _read_observed(self, where: Queue | str, session: ZookeeperSession) -> Steps[Any]:
        with self._lock:
            if where not in self._known_at:
                raise BackendUnavailable(SERVICE, "it is not observed any more")
            place = self._places.setdefault(where, self._place(where))
            must_probe, self._probed = self._probed is not session, session
        if must_probe:
            run_in_background(self._probe(session))
        until = self._now() + 2 * session.ttl() / _PROBES
        while not (yield from self._round(where, place, session.requests)):
            if self._now() > until:
                raise BackendUnavailable(SERVICE, "it changes faster than it is read")
        with self._lock:
            sent, zxid = self._last_probe
            if zxid <= place.state.revision and where in self._known_at:
                self._known_at[where] = max(self._known_at[where], sent)
            is_watched = not place.readings()  # an absent node is not yet
        if not is_watched:
            self._observers.changed(where)
        return place.state

    def _place(self, where: Queue | str) -> Place:
        if isinstance(where, Queue):
            return QueuePlace(where.name, self._layout)
        return Place(where)

    def _round(self, key: object, place: Place, requests: Requests) -> Steps[bool]:
        """Read what is to be read; whether that proves a state, or the one before is the newest."""
        with self._lock:
            if self._places.get(key) is not place:
                raise BackendUnavailable(SERVICE, "it is read anew, or not observed any more")
            readings = place.readings()
        if not readings:
            return True
        try:
            yield all_of(
                [
                    self._ask(
                        requests,
                        requests.made(_KINDS[reading.kind], reading.path, self._fired),
                        partial(place.take, reading),
                    )
                    for reading in readings
                ]
            )
        except BaseException:  # answers may be under way: the next reading begins anew
            self._forget(key, place)
            raise
        with self._lock:
            return place.advance() or not place.readings()

    def _forget(self, key: object, place: Place) -> None:
        with self._lock:
            if self._places.get(key) is place:
                del self._places[key]

    def _ask(
        self, requests: Requests, request: Any, take: Callable[[Any, int], object]
    ) -> Promise[None]:
        """Send ``request``, and ``take`` the answer in its order among the events."""
        taken: Promise[None] = Promise()

        def arrived(answer: Promise[Answer]) -> None:
            if (error := answer.exception()) is not None:
                taken.fail(error)
                return
            with self._lock:
                take(*answer.result())
            taken.resolve(None)

        requests.send(request, partial(requests.after_events, arrived))
        return taken

    def _fired(self, event: Any) -> None:
        # After a disconnect kazoo calls without a path. Watches can't be taken back: those of a
        # given client may still fire when nobody observes any more.
        if event.type == EventType.NONE:
            return
        paths = (event.path, event.path.rpartition("/")[0] or "/")
        changed = []
        with self._lock:
            for key, place in self._places.items():
                if place.path in paths:
                    place.fired(event.type, event.path)
                    changed.append(key)
        for key in changed:
            self._observers.changed(key)

    # Doubts

    def _doubt(self) -> None:
        """Changes may be missed: read all that is observed anew."""
        with self._lock:
            for where in self._known_at:
                self._places.pop(where, None)
        self._observers.gap(is_over=True)

    def _probe(self, session: ZookeeperSession) -> Steps[None]:
        """Send probes while something is observed; silence is a doubt."""
        try:
            while True:
                with self._lock:
                    if self._probed is not session:
                        return
                    if not self._known_at or session.has_ended:
                        self._probed = None
                        return
                take = partial(self._probed_at, self._now())
                answered = self._ask(session.requests, Transaction([]), take)
                yield sleep(self._timers, session.ttl() / _PROBES)
                if not answered.done():
                    self._doubt()
                    yield settled(answered)
        except BaseException:  # no timers, or Ctrl-C: the next reading begins it again
            self._probed = None
            raise

    def _probed_at(self, sent: float, _: object, zxid: int) -> None:
        """A probe was answered, behind the events of all earlier changes.

        What these have changed may have yet to be read: then what is shown is as old as before.
        """
        self._last_probe = sent, zxid
        for where in self._known_at:
            place = self._places.get(where)
            if place is not None and not place.readings():
                self._known_at[where] = sent
