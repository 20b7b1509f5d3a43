"""Observations of data and queues: what is asked for, when, and when it is in doubt.

Each place is read by requests that leave watches, until it is complete, and shown whenever answers
prove a state: see `places`. A change costs an event and what it takes to read again what has
changed. Whatever else may have hidden a change puts all places in doubt, and they are read anew: a
connection that was lost, or is silent.

How long ago all was certainly told: a connection on which nothing comes looks the same whether
nothing changes, the server lags or nobody is there. So now and then the client looks: it sends a
transaction that does nothing. A majority agrees on it, the server answers when it has come as far,
and the answer comes behind all events of what was before. So what had happened when the look began
has been told when it is answered. (`sync` would cost the servers less. But a leader that was
replaced without knowing it yet answers that, too.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.protocol.serialization import Exists, GetChildren2, GetData, Sync, Transaction
from kazoo.protocol.states import Callback, EventType

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
from coordlock.runtime.clock import SYSTEM_CLOCK, SystemTimers
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.answers import Dated, ask, full
from coordlock_zookeeper.errors import SERVICE
from coordlock_zookeeper.following import Following, Look, Observer, Reader
from coordlock_zookeeper.line import Line
from coordlock_zookeeper.places import Need, Place
from coordlock_zookeeper.session import ZookeeperSession
from coordlock_zookeeper.transactions import explained

__all__ = ["Observations"]

log = Log("coordlock.zookeeper")

State = TypeVar("State", Snapshot, Listing)

#: Seconds between attempts to open a session: the first doubles up to the last.
_BACKOFF: Final = (0.1, 2.0)
#: Seconds after which a place is read again that could not be read.
_PAUSE: Final = 0.2
#: In which part of the time-to-live a look is due, and must be answered.
_LOOKS: Final = 3


class Observations:
    """The observations of one client: the audience of its `Line`, by whose worker all is done."""

    def __init__(self, line: Line) -> None:
        self._line: Final = line
        line.audience = self
        self._timers = SystemTimers("coordlock-zookeeper-look")
        self._followings: dict[object, Following] = {}
        #: The same, by the paths of their nodes.
        self._at: dict[str, list[Following]] = {}
        #: Where there is a connection.
        self._session: ZookeeperSession | None = None
        self._interval = 0.0
        #: When the look began that is not answered, and that was last.
        self._looking: float | None = None
        self._looked = 0.0
        #: The last that were answered, by whichever server.
        self._looks: deque[Look] = deque(maxlen=2)
        #: Counts connections.
        self._turn = 0
        self._is_silent = False
        self._is_ticking = False
        self._is_wanting = False
        self._delay = _BACKOFF[0]
        self._closed: BackendUnavailable | None = None

    def observe(self, place: Place[State], news: Callable[[], None]) -> Observation[State]:
        """Observe ``place``, or what is followed already of that name: see `Observation`."""
        observation: Observation[State] = Observation(
            news, lambda: self._do(self._leave, place.name, observation), SYSTEM_CLOCK.now()
        )
        self._do(self._join, place, observation)
        return observation

    def read(self, place: Place[State]) -> Promise[State]:
        """The state of ``place`` at one moment from now on."""
        promise: Promise[State] = Promise()
        self._line.session().add_done_callback(partial(self._do, self._read, place, promise))
        return promise

    # The audience of the line

    def connected(self, session: ZookeeperSession) -> None:
        """See `Audience`."""
        self._session, self._interval = session, session.ttl() / _LOOKS
        self._turn += 1
        self._looking, self._is_silent = None, False
        self._delay = _BACKOFF[0]
        self._begin_all()

    def disconnected(self) -> None:
        """See `Audience`."""
        self._session = None
        self._turn += 1
        self._doubt_all()

    def lost(self) -> None:
        """See `Audience`."""
        self._later(self._delay, self._want)

    def closed(self, error: BackendUnavailable) -> None:
        """See `Audience`."""
        self._closed = error
        self._session = None
        self._end_all(error)
        self._timers.close()

    # Who observes

    def _join(self, place: Place[Any], observer: Observer) -> None:
        if self._closed is not None:
            observer.end(self._closed, SYSTEM_CLOCK.now())
        elif (following := self._followings.get(place.name)) is not None:
            following.join(observer)
        else:
            following = self._add(place.name, place, observer)
            self._want()
            self._look()
            self._begin(following)

    def _add(self, name: object, place: Place[Any], observer: Observer) -> Following:
        following = self._followings[name] = Following(name, place, SYSTEM_CLOCK.now())
        self._at.setdefault(place.path, []).append(following)
        following.join(observer)
        return following

    def _leave(self, name: object, observer: Observer) -> None:
        following = self._followings.get(name)
        if following is not None and observer in following.observers:
            following.observers.remove(observer)
            if not following.observers:
                self._forget(following)

    def _forget(self, following: Following) -> None:
        following.begin()  # what is under way comes too late
        del self._followings[following.name]
        here = self._at[following.place.path]
        here.remove(following)
        if not here:
            del self._at[following.place.path]

    def _end(self, following: Following, error: CoordlockError) -> None:
        self._forget(following)  # who comes from now on begins anew
        following.end(error)

    def _end_all(self, error: CoordlockError) -> None:
        for following in list(self._followings.values()):
            self._end(following, error)

    def _read(
        self, place: Place[Any], promise: Promise[Any], opened: Promise[ZookeeperSession]
    ) -> None:
        if (error := opened.exception()) is not None:
            promise.fail(error)
        elif self._session is None:
            promise.fail(BackendUnavailable(SERVICE, "the connection was lost"))
        else:
            reader: Reader[Any] = Reader(promise)
            promise.add_done_callback(lambda _: self._do(self._leave, promise, reader))
            # So that the server then shows all that was acknowledged before.
            sync = Sync(full(self._session.client, "/"))
            self._ask(self._session, sync, partial(self._synced, promise))
            self._begin(self._add(promise, place, reader))

    def _synced(self, promise: Promise[Any], answer: Promise[Dated]) -> None:
        if (error := answer.exception()) is not None:
            promise.fail(error)

    # Reading

    def _begin_all(self) -> None:
        if self._followings:
            self._look()
        for following in list(self._followings.values()):
            self._begin(following)

    def _begin(self, following: Following) -> None:
        following.begin()
        self._go_on(following)

    def _go_on(self, following: Following) -> None:
        """Send the next round of requests, if it is time to."""
        if (session := self._session) is not None and not self._is_silent:
            for need in following.place.needs():
                request = _request(session.client, need, self._fired)
                take = partial(self._take, following, following.turn, need)
                self._ask(session, request, take)

    def _ask(
        self, session: ZookeeperSession, request: Any, take: Callable[[Promise[Dated]], None]
    ) -> None:
        """Send ``request``, and have the answer taken in its turn among the events."""
        handler = session.client.handler

        def answered(answer: Promise[Dated]) -> None:
            if isinstance(request, _GetData):
                request.is_absent = answer.exception() is None and answer.result()[0] is None
            # In the thread that has queued all earlier events there.
            handler.dispatch_callback(Callback("watch", self._do, (take, answer)))

        ask(session.client, request, answered)

    def _take(self, following: Following, turn: int, need: Need, answer: Promise[Dated]) -> None:
        if turn != following.turn:
            return
        error = answer.exception()
        if error is None:
            found, zxid = answer.result()
            following.place.take(need, found, zxid)
            if (state := following.place.advance()) is None:
                self._go_on(following)
            else:
                following.show(state, self._looks)
                # Behind what readers do, who need no more.
                self._do(self._retry, following, following.turn)
        elif isinstance(error, (BackendUnavailable, SessionLost)):
            following.begin()
            self._later(_PAUSE, partial(self._retry, following, following.turn))
        else:
            assert isinstance(error, BackendError)
            self._end(following, explained(need.path, error))

    def _retry(self, following: Following, turn: int) -> None:
        if turn == following.turn:
            self._go_on(following)

    def _fired(self, event: Any) -> None:
        # In kazoo's thread for events. After a disconnect it calls without a path. Watches can't be
        # taken back: those of a given client may still tell when nobody observes any more.
        if event.type != EventType.NONE and self._at:
            self._do(self._changed, event.type, event.path)

    def _changed(self, kind: str, path: str) -> None:
        above = path.rpartition("/")[0] or "/"
        for following in (*self._at.get(path, ()), *self._at.get(above, ())):
            following.place.fired(kind, path)
            self._go_on(following)

    # Doubts

    def _doubt_all(self) -> None:
        """Nothing is read until a look is answered."""
        self._is_silent = True
        for following in list(self._followings.values()):
            following.doubt()

    def _look(self) -> None:
        if self._session is None:
            return
        if not self._is_ticking:
            self._is_ticking = True
            self._later(self._interval, self._tick)
        if self._looking is None:
            self._looking = self._looked = began = SYSTEM_CLOCK.now()
            self._ask(self._session, Transaction([]), partial(self._seen, self._turn, began))

    def _seen(self, turn: int, began: float, answer: Promise[Dated]) -> None:
        if turn != self._turn:
            return
        self._looking = None
        if answer.exception() is not None:
            self._doubt_all()  # the next look may be answered
            return
        self._looks.append(Look(began, answer.result()[1]))
        for following in self._followings.values():
            following.looked(began, began - 2 * self._interval)
        if self._is_silent:
            self._is_silent = False
            self._begin_all()

    def _tick(self) -> None:
        if self._session is None or not self._followings:
            self._is_ticking = False
            return
        left = self._looked + self._interval - SYSTEM_CLOCK.now()
        if left <= 0:
            left = self._interval
            if self._looking is not None and not self._is_silent:
                self._doubt_all()
            self._look()
        self._later(left, self._tick)

    # Sessions

    def _want(self) -> None:
        """Have a session, if somebody observes."""
        if self._session is None and self._followings and not self._is_wanting:
            self._is_wanting = True
            opened = self._line.session()
            opened.add_done_callback(lambda answer: self._do(self._wanted, answer.exception()))

    def _wanted(self, error: BaseException | None) -> None:
        self._is_wanting = False
        if isinstance(error, AuthenticationFailed):
            self._end_all(error)
        elif error is not None:
            self._later(self._delay, self._want)
            self._delay = min(2 * self._delay, _BACKOFF[1])

    def _do(self, action: Callable[..., None], *arguments: Any) -> None:
        self._line.worker.run(partial(action, *arguments))

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        with suppress(ClientClosed):
            self._timers.call_at(SYSTEM_CLOCK.now() + seconds, partial(self._do, action))


def _request(client: Any, need: Need, fired: Callable[[Any], None]) -> Any:
    path = full(client, need.path)
    match need.kind:
        case "data":
            return _GetData(path, fired)
        case "children":
            return GetChildren2(path, fired)
        case "existence":
            return Exists(path, fired)


class _GetData(GetData):  # type: ignore[misc]
    """A request that leaves no watch on a node that is not there, as the server does not either.

    kazoo would keep such a watch as long as the connection lasts.
    """

    is_absent = False

    @property
    def watcher(self) -> object:
        """What kazoo calls when the watch fires; it asks for that after the answer has come."""
        return None if self.is_absent else self[1]
