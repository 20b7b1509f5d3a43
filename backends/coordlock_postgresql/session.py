"""The session of a client, and what the server notifies it of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

from coordlock.backend import Backend, SessionInfo, SessionListener
from coordlock.backend.observers import Observers
from coordlock.backend.session import OneSession
from coordlock.errors import BackendUnavailable
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.driver import Steps, awaited, run_in_background
from coordlock.runtime.promise import Promise, failed
from coordlock_postgresql.access import Server
from coordlock_postgresql.errors import SERVICE, client_closed
from coordlock_postgresql.listening import Listening
from coordlock_postgresql.requests import Requests
from coordlock_postgresql.watches import MAX_POLL_S, Seen, Watches

__all__ = ["PostgresqlSession", "key"]

#: Seconds after which a look renews what is followed, and reads it: for each place so much, within
#: these bounds. The server forgets it after a minute.
FOLLOW_PLACE_S: Final = 0.02
MIN_FOLLOW_S: Final = 4.0
MAX_FOLLOW_S: Final = 20.0

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
        #: Arguments of each request, the server's clock by the latest answer among them.
        self._common: Final[dict[str, object]] = {"root": root, "caller": self._channel}
        self._lock: Final = threading.RLock()
        self._requests: Final = Requests(
            "coordlock-postgresql-requests", server, timers, self._common
        )
        self._heartbeats: Final = Requests(
            "coordlock-postgresql-heartbeat", server, timers, self._common
        )
        self._observers: Final = Observers(self, timers.clock, self._lock)
        self._watches: Final = Watches(
            self._look,
            lambda session: session == self._session.current,
            lambda: bool(self._observers.places()),
            timers,
            self._lock,
        )
        self._session: OneSession[str] = OneSession(SERVICE, self._lock, self._watches.reset)
        self._listening: Final = Listening(server, self._channel, self, timers)
        self._listens: Final = listens
        #: Names the database that has the locks.
        self._database = ""
        self._opened = 0
        #: The sessions whose end the server has not acknowledged, the current one last.
        self._sessions: list[str] = []
        #: When to say again what is followed.
        self._follow_at = 0.0
        self._is_suspect = False
        self._closing: Promise[None] | None = None

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        with self._lock:
            self._opened += 1
            session = f"{self._channel}-{self._opened}"
            former = self._sessions.copy()
            self._sessions.append(session)
        self._listen()

        def begun(_: int, answer: dict[str, str]) -> SessionInfo:
            with self._lock:
                self._database = answer["database"]
                self._sessions = self._sessions[self._sessions.index(session) :]
            if not self._session.begin(session, listener):
                raise client_closed()
            return SessionInfo(session, self._ttl)

        return self._ask("open", begun, session=session, former=former, ttl=f"{self._ttl} s")

    def heartbeat(self) -> Promise[float]:
        if not (session := self._session.current):
            return failed(self._session.missing())

        # A part of the time-to-live, so that the session has time for another heartbeat.
        patience = min(self._ttl / 3, self._server.timeout)
        answer = self._heartbeats.ask(
            "heartbeat", {"session": session}, lambda *_: self._ttl, patience
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
        if session:
            self._ask("close", lambda *_: None, session=session)
        self._heartbeats.close()
        self._requests.close().add_done_callback(closing.follow)
        return closing

    # Requests

    def _ask(self, verb: str, read: Callable[[int, Any], T], **arguments: object) -> Promise[T]:
        """What ``read`` makes of the answer to a request, and of its revision."""
        return self._requests.ask(verb, arguments, read, self._server.timeout)

    def _in_session(
        self, verb: str, read: Callable[[int, Any], T], **arguments: object
    ) -> Promise[T]:
        """The same of a request that needs the session, and notices if it has ended."""
        if not (session := self._session.current):
            return failed(self._session.missing())
        answer = self._ask(verb, read, session=session, **arguments)
        answer.add_done_callback(partial(self._session.notice, session))
        return answer

    def _look(
        self, contenders: Sequence[Contender], dead: Mapping[str, int]
    ) -> Promise[Sequence[Seen]]:
        """Look at ``contenders``, end sessions with ``dead`` beats, and follow what is observed."""
        places: list[str] = []
        now = self._timers.clock.now()
        if now >= self._follow_at:
            places = self._observers.places()
            least = MIN_FOLLOW_S if self._listening.is_live else 0.0
            self._follow_at = now + min(max(least, FOLLOW_PLACE_S * len(places)), MAX_FOLLOW_S)

        def followed(answer: Promise[Any]) -> None:
            if answer.exception() is not None:
                self._follow_at = 0.0
                self._observers.gap()
            for place in places:
                self._observers.live(place)

        keys = [{**key(each), "beat": dead.get(each.session)} for each in contenders]
        ask = self._in_session if self._session.current else self._ask
        answer = ask("look", lambda _, seen: seen, contenders=keys, places=places)
        answer.add_done_callback(followed)
        return answer

    # What the client is told: see `NewsListener`

    def _listen(self) -> None:
        if self._listens:
            self._listening.start()

    def on_listening(self) -> None:
        """Try whether messages arrive."""
        run_in_background(self._probe())

    def _probe(self) -> Steps[None]:
        while self._closing is None:
            # What ended the last connection that listens has often ended that for requests, too.
            with suppress(BackendUnavailable):
                return (yield from awaited(self._ask("probe", lambda *_: None)))
            yield self.pause()

    def on_live(self) -> None:
        """They do."""
        self._follow_at = 0.0
        self._watches.set_live(True)
        if self._is_suspect:
            self._is_suspect = False
            self._session.recovered()

    def on_message(self, message: str) -> None:
        """A contender has left or published its value, or what is followed has changed."""
        match message.split(" ", 3):
            case ["left", id, token]:
                self._watches.on_left(id, int(token))
            case ["value", id, token, version]:
                self._watches.on_value(id, int(token), int(version))
            case ["place", *place]:
                self._observers.changed(" ".join(place))

    def on_silence(self, reason: str) -> None:
        """The connection that listens was lost."""
        self._observers.gap()
        self._is_suspect = True
        self._session.suspect(reason)
        self._follow_at = 0.0
        self._watches.set_live(False)

    # What is followed: see `Reporter`

    def report(self, place: str) -> bool:
        """Report changes of ``place``."""
        self._listen()
        self._follow_at = 0.0
        # Not here: what is observed is not known yet.
        self._timers.call_at(self._timers.clock.now(), self._watches.look)
        return False

    def unreport(self, place: str) -> None:
        """Nothing: what is not renewed is forgotten."""

    def pause(self) -> Promise[None]:
        """Wait before a reading is repeated."""
        return sleep(self._timers, self._timers.jitter(MAX_POLL_S / 4))


def key(contender: Contender) -> dict[str, object]:
    """What names ``contender``."""
    return {"session": contender.session, "id": contender.id, "token": contender.order}
