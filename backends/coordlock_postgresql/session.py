"""The session of a client, and what the server notifies it of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar
from uuid import uuid4

from coordlock.backend import Backend, SessionInfo, SessionListener
from coordlock.backend.observers import Observers
from coordlock.backend.session import OneSession
from coordlock.errors import BackendError, BackendUnavailable, ClientClosed, SessionLost
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.promise import Promise, failed
from coordlock_postgresql.access import Server
from coordlock_postgresql.errors import SERVICE, client_closed
from coordlock_postgresql.listening import PROBE, Listening
from coordlock_postgresql.requests import Requests
from coordlock_postgresql.watches import MAX_POLL_S, Seen, Watches

__all__ = ["PostgresqlSession", "keys"]

#: Seconds after which a follower says again what it follows, and reads it. It counts for a minute.
FOLLOW_S: Final = 20.0

T = TypeVar("T")


class PostgresqlSession(Backend):
    """What a client needs for its session.

    Args:
        root: of all names.
        listens: whether to wait for notifications.
    """

    def __init__(
        self, server: Server, root: str, ttl: float, timers: Timers, *, listens: bool
    ) -> None:
        self._server: Final = server
        self._root: Final = root
        self._ttl: Final = ttl
        self._timers: Final = timers
        #: The channel on which the client listens.
        self._channel: Final = f"coordlock_{uuid4().hex[:16]}"
        self._lock: Final = threading.RLock()
        self._requests: Final = Requests("coordlock-postgresql-requests", server, timers)
        self._heartbeats: Final = Requests("coordlock-postgresql-heartbeat", server, timers)
        self._session: OneSession[str] = OneSession(SERVICE, self._lock, self._ended)
        self._watches: Final = Watches(
            self._look, self._reap, lambda id: id == self._session.current, timers, self._lock
        )
        self._observers: Final = Observers(self, timers.clock, self._lock)
        self._listening = Listening(server, self._channel, self, timers, ttl / 3)
        self._listens: Final = listens
        #: Names the database that has the locks.
        self._database = ""
        self._opened = 0
        self._enqueued: Final = count(1)
        #: The sessions whose end the server has not acknowledged, the current one last.
        self._sessions: list[str] = []
        #: Counts the answers, which come in the order of the states that they show.
        self._revisions: Final = count(1)
        self._is_following = self._is_suspect = False
        self._closing: Promise[None] | None = None

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        with self._lock:
            self._opened += 1
            session = f"{self._channel}-{self._opened}"
            former = self._sessions.copy()
            self._sessions.append(session)
        self._listen()

        def begun(answer: dict[str, Any]) -> SessionInfo:
            if "pause" in answer:
                raise BackendError(
                    SERVICE,
                    f"ttl={self._ttl:g} is longer than the {answer['pause']:g} s for which nothing "
                    "is granted after a failover: give a shorter one, or set it with `coordlock "
                    "setup postgresql --max-ttl`",
                )
            with self._lock:
                self._database = answer["database"]
                self._sessions = self._sessions[self._sessions.index(session) :]
            if not self._session.begin(session, listener):
                raise client_closed()
            return SessionInfo(session, self._ttl)

        statement = "CALL coordlock.open(%s, %s, %s, make_interval(secs => %s))"
        return self._ask(statement, (self._root, session, former, self._ttl), begun)

    def heartbeat(self) -> Promise[float]:
        if not (session := self._session.current):
            return failed(self._session.missing())

        def beaten(is_there: bool) -> float:
            if not is_there:
                raise self._loss()
            return self._ttl

        # A part of the time-to-live, so that the session has time for another heartbeat.
        patience = min(self._ttl / 3, self._server.timeout)
        answer = self._heartbeats.ask(
            "CALL coordlock.heartbeat(%s)", (session,), lambda row: beaten(row[0]), patience
        )
        answer.add_done_callback(partial(self._session.notice, session))
        return answer

    def close(self) -> Promise[None]:
        with self._lock:
            if self._closing is not None:
                return self._closing
            session = self._session.forget(closes=True)
            self._closing = closing = Promise[None]()
        self._watches.close()
        self._observers.close(client_closed())
        self._listening.close()
        last = None
        if session:
            last = partial(
                self._ask, "CALL coordlock.close(%s, %s)", (self._root, session), lambda _: None
            )
        self._heartbeats.close()
        self._requests.close(last).add_done_callback(closing.follow)
        return closing

    # Requests

    def _ask(
        self, statement: str, arguments: Sequence[object], read: Callable[[Any], T]
    ) -> Promise[T]:
        """What ``read`` makes of the answer, which is one value."""
        return self._requests.ask(
            statement, arguments, lambda row: read(row[0]), self._server.timeout
        )

    def _in_session(
        self, statement: str, arguments: Sequence[object], read: Callable[[Any], T]
    ) -> Promise[T]:
        """The same of a request that ends the session if the answer says so."""
        session = self._session.current
        answer = self._ask(statement, arguments, read)
        if session:
            answer.add_done_callback(partial(self._session.notice, session))
        return answer

    def _loss(self) -> SessionLost:
        return SessionLost(
            SERVICE,
            "it expired, an operator deleted it, or another server answers (failover, restored "
            "backup)",
        )

    def _ended(self) -> None:
        self._watches.reset()

    def _look(self, contenders: Sequence[Contender]) -> Promise[Sequence[Seen]]:
        sessions, ids, _ = keys(contenders)
        return self._ask("SELECT coordlock.look(%s, %s)", (sessions, ids), _seen)

    def _reap(self, session: str, beat: int) -> Promise[None]:
        statement = "CALL coordlock.reap(%s, %s, %s)"
        return self._ask(statement, (self._root, session, beat), lambda _: None)

    # What the client is told: see `NewsListener`

    def _listen(self) -> None:
        if self._listens:
            self._listening.start()

    def on_listening(self) -> None:
        """Try whether messages arrive."""
        statement = "SELECT pg_catalog.pg_notify(%s, %s)"
        self._ask(statement, (self._channel, PROBE), lambda _: None)

    def on_live(self) -> None:
        """They do."""
        self._watches.on_live(next(self._revisions))
        self._follow()
        if self._is_suspect:
            self._is_suspect = False
            self._session.recovered()

    def on_message(self, message: str) -> None:
        """A contender has left or published its value, or what is followed has changed."""
        match message.split(" ", 4):
            case ["left", id, token, _]:
                self._watches.on_left(id, int(token), next(self._revisions))
            case ["value", id, token, version]:
                self._watches.on_value(id, int(token), int(version))
            case ["place", *place]:
                self._observers.changed(" ".join(place))

    def on_silence(self, reason: str) -> None:
        """The connection that listens was lost."""
        self._watches.on_silence()
        self._observers.gap(self._listening.complete_until)
        self._is_suspect = True
        self._session.suspect(reason)
        self._follow()

    def is_followed(self) -> bool:
        """Whether something is watched or followed."""
        return bool(self._observers.places()) or not self._watches.is_empty

    # What is followed: see `Reporter`

    def report(self, place: str) -> bool:
        """Report changes of ``place``."""
        self._listen()
        # Not here: what is observed is not known yet.
        self._timers.call_at(self._timers.clock.now(), self._follow)
        return False

    def unreport(self, place: str) -> None:
        """Nothing: what is not renewed is forgotten."""

    def pause(self) -> Promise[None]:
        """Wait before a reading is repeated."""
        return sleep(self._timers, self._timers.jitter(MAX_POLL_S / 4))

    def _follow(self) -> None:
        """Let the server report changes of all that is followed, and read it."""
        if not (places := self._observers.places()):
            return
        is_live, asked_at = self._listening.is_live, self._timers.clock.now()

        def following(_: object) -> None:
            for place in places:
                self._observers.live(place)

        def repeat(answer: Promise[None]) -> None:
            if answer.exception() is not None:  # also while no connection listens
                self._observers.gap(asked_at)
            with self._lock, suppress(ClientClosed):
                if self._is_following or self._closing is not None:
                    return
                self._is_following = True
                is_well = is_live and answer.exception() is None
                delay = FOLLOW_S if is_well else MAX_POLL_S / 4
                self._timers.call_at(self._timers.clock.now() + delay, again)

        def again() -> None:
            self._is_following = False
            self._follow()

        statement = "CALL coordlock.follow(%s, %s, %s)"
        answer = self._ask(statement, (self._root, self._channel, places), following)
        answer.add_done_callback(repeat)


def _seen(answer: Sequence[Seen] | None) -> Sequence[Seen]:
    if answer is None:
        raise BackendUnavailable(SERVICE, "nothing is granted for a while after a failover")
    return answer


def keys(contenders: Sequence[Contender]) -> tuple[list[str], list[str], list[int]]:
    """What names contenders: their sessions, ids and tokens."""
    return (
        [each.session for each in contenders],
        [each.id for each in contenders],
        [each.order for each in contenders],
    )
