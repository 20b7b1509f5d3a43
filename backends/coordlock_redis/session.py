"""The session: from when it is opened until Redis has forgotten it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

from coordlock.backend import Backend, SessionInfo, SessionListener
from coordlock.backend.observers import Observers
from coordlock.backend.session import OneSession
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, failed
from coordlock_redis.errors import SERVICE, client_closed
from coordlock_redis.request_thread import RequestThread
from coordlock_redis.requests import MICROSECONDS, Request, ScriptContext, Word, loss
from coordlock_redis.servers import Servers
from coordlock_redis.subscription import Subscription
from coordlock_redis.watches import Watches

__all__ = ["RedisSession"]

#: Seconds before another reading after one that got no answer.
REREAD_DELAY_S: Final = 0.2

T = TypeVar("T")

log = Log("coordlock")


class RedisSession(Backend):
    """What a client needs for its session, and what Redis publishes for it.

    Args:
        prefix: of the names of all keys and channels of the root.
        delay: see `ScriptContext`.
        replicas: how many must have what the client changes.
    """

    def __init__(
        self,
        servers: Servers,
        prefix: bytes,
        ttl: float,
        timers: Timers,
        *,
        delay: float,
        replicas: int = 0,
    ) -> None:
        self._servers: Final = servers
        self._ttl: Final = ttl
        self._replicas: Final = replicas
        self._timers: Final = timers
        self._client: Final = uuid4().hex[:16]
        self._root: Final = prefix
        self._inbox: Final = prefix + b"inbox:" + self._client.encode()
        #: On this channel, Redis reports that data may be gone.
        self._anew: Final = prefix + b"anew"
        self._context: Final = ScriptContext(servers.key, self._client, delay, delay)
        self._lock: Final = threading.RLock()
        channels = {self._inbox, self._anew}
        self._subscription: Final = Subscription(
            servers, self._context, timers, replicas, channels, ttl / 3, self
        )
        self._requests: Final = RequestThread(
            servers,
            self._context,
            timers.clock,
            servers.timeout,
            replicas,
            guests=[self._subscription],
        )
        self._watches: Final = Watches(self._look, self._is_own, timers, self._lock)
        self._session: OneSession[str] = OneSession(SERVICE, self._lock, self._watches.reset)
        self._observers: Final = Observers(self, timers.clock, self._lock)
        self._opened = 0
        self._closing: Promise[None] | None = None

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        with self._lock:
            self._opened += 1
            session = f"{self._client}-{self._opened}"
        self._subscription.keep()
        arguments: tuple[Word, ...] = (session, int(self._ttl * MICROSECONDS))
        begun = partial(self._begun, session, listener)
        return self._subscription.ask(Request("open", arguments, begun, changes=True))

    def _begun(self, session: str, listener: SessionListener, answer: list[Any]) -> SessionInfo:
        _, revision, born, delay = answer
        self._see(born, delay)
        self._watches.opened(revision)
        if not self._session.begin(session, listener):
            raise client_closed()
        return SessionInfo(session, self._ttl)

    def _see(self, born: int, delay: int) -> None:
        if born != self._context.born:
            self._context.born, self._context.is_quiet = born, False
        self._context.largest_delay = delay / MICROSECONDS

    def heartbeat(self) -> Promise[float]:
        if not (session := self._session.current):
            return failed(self._session.missing())
        arguments: tuple[Word, ...] = (session, int(self._ttl * MICROSECONDS))

        def beaten(answer: list[Any]) -> float:
            _, born, delay = answer
            if born != self._context.born:
                raise loss(born, self._context)
            self._see(born, delay)
            return self._ttl

        request = Request("heartbeat", arguments, beaten, changes=True)
        answer = self._subscription.ask(request)
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
        last = Request("close", [session], lambda _: None) if session else None
        ended = self._requests.close(last)
        ended.add_done_callback(closing.follow)
        return closing

    def _in_session(self, request: Callable[[str], Request[T]]) -> Promise[T]:
        """Send what ``request`` makes of the session; notice when that is gone."""
        if not (session := self._session.current):
            return failed(self._session.missing())
        answer = self._requests.ask(request(session))
        answer.add_done_callback(partial(self._session.notice, session))
        return answer

    def _look(self, request: Request[None]) -> Promise[None]:
        """Look for contenders, unless the session is gone, and with it those of the client."""
        session = self._session.current or ""
        request.arguments = [session, *request.arguments]
        answer = self._requests.ask(request)
        answer.add_done_callback(partial(self._session.notice, session))
        return answer

    def _is_own(self, session: str) -> bool:
        return session == self._session.current

    # What is observed: see `Reporter`

    def report(self, place: bytes) -> bool:
        """Subscribe to ``place``, a channel."""
        self._subscription.subscribe(place)
        return False

    def unreport(self, place: bytes) -> None:
        """Undo that."""
        self._subscription.unsubscribe(place)

    def pause(self) -> Promise[None]:
        """Wait before a reading is repeated."""
        return sleep(self._timers, self._timers.jitter(REREAD_DELAY_S))

    def _reread(self) -> None:
        self._observers.gap(self._subscription.complete_until, is_over=True)

    # What the subscription reports, in its thread

    def on_message(self, channel: bytes, message: bytes) -> None:
        """A message came."""
        try:
            if channel == self._inbox:
                self._take(message.decode("utf-8", "replace").split(" "))
            elif channel != self._anew:
                self._observers.changed(channel)
            else:
                if (born := int(message)) != self._context.born:
                    # Before what is observed shows that the data is gone.
                    self._session.lose(self._session.current, loss(born, self._context).reason)
                self._reread()
        except ValueError:
            text = "redis: another program published on coordlock's channel: %r %r"
            log.debug(text, channel, message)

    def _take(self, words: list[str]) -> None:
        match words:
            case ["left", id, order, before, revision]:
                self._watches.on_left(id, int(order), int(revision), was_first=before == "0")
            case ["value", id, order, version]:
                self._watches.on_value(id, int(order), int(version))
            case ["over", session, born]:
                self._session.lose(session, loss(int(born), self._context).reason)

    def on_subscribed(self, channel: bytes) -> None:
        """What happens from now on is reported on this channel."""
        self._observers.live(channel)

    def on_live(self) -> None:
        """The connection is there, with all channels."""
        self._watches.on_subscribed()
        for channel in self._observers.places():
            self._observers.live(channel)
        self._session.recovered()

    def on_silence(self, since: float, reason: str) -> None:
        """The connection is gone; all until ``since`` was reported."""
        self._watches.on_gap()
        self._observers.gap(since)
        self._session.suspect(reason)
