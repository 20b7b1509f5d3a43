"""The session's connection: heartbeats, and what Redis publishes to the client.

A message proves nothing: what it concerns is read. Messages are lost while there is no connection.
So everything is read when the connection is back.

The answer to a request comes behind all earlier messages, so it shows what has been reported.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from coordlock.errors import BackendError
from coordlock.runtime.clock import Timers
from coordlock.runtime.process import PROCESS
from coordlock_redis.errors import translate
from coordlock_redis.request_thread import RequestThread
from coordlock_redis.requests import Request, ScriptContext
from coordlock_redis.servers import BROKEN, Connection, Servers, packed

__all__ = ["Subscription"]

#: Seconds before another attempt to connect, from the first to the last.
RECONNECT_DELAYS_S: Final = (0.05, 1.0)


class Subscriber(Protocol):
    """Called by the thread that receives."""

    def on_message(self, channel: bytes, message: bytes) -> None:
        """A message came."""

    def on_subscribed(self, channel: bytes) -> None:
        """What happens from now on is reported on this channel."""

    def on_live(self) -> None:
        """The connection is there, with all channels."""

    def on_silence(self, since: float, reason: str) -> None:
        """The connection is gone; all until ``since`` was reported."""


class Subscription(RequestThread):
    """A connection of its own, which no other request holds up.

    Args:
        channels: those that it is always subscribed to.
        ping_interval: seconds without a request until the connection is tried by one.
    """

    def __init__(
        self,
        servers: Servers,
        context: ScriptContext,
        timers: Timers,
        replicas: int,
        channels: set[bytes],
        ping_interval: float,
        session: Subscriber,
    ) -> None:
        # A part of the time-to-live, so that the lease has time for another heartbeat.
        timeout = min(servers.timeout, ping_interval)
        super().__init__(servers, context, timers.clock, timeout, replicas)
        self._timers: Final = timers
        self._ping_interval: Final = ping_interval
        self._session: Final = session
        self._channels: Final = channels
        #: Whether the connection is kept.
        self._is_wanted = False
        #: When to connect next.
        self._connect_at = 0.0
        self._pause = RECONNECT_DELAYS_S[0]
        #: All that happened until then has been reported.
        self.complete_until = 0.0

    def keep(self) -> None:
        """Keep the connection from now on. Safe for threads."""
        if self._host._until is None:
            self._is_wanted = True
            self._host._start()
        self._wake()

    def subscribe(self, channel: bytes) -> None:
        """Subscribe to ``channel``, too. Safe for threads."""
        with self._lock:
            self._channels.add(channel)
            self._order("SUBSCRIBE", channel)

    def unsubscribe(self, channel: bytes) -> None:
        """Undo that. Safe for threads."""
        with self._lock:
            self._channels.discard(channel)
            self._order("UNSUBSCRIBE", channel)

    def _order(self, command: str, *channels: bytes) -> None:
        # The child of a fork shares the socket.
        if (connection := self.connection) is not None and PROCESS.id == self._pid:
            self._put(connection, [], packed(command, *channels))

    def _needs_connection(self) -> bool:
        due = self._due()
        return self.connection is None and due is not None and self._clock.now() >= due

    def _connect(self) -> None:
        began_at = self._clock.now()
        with self._lock:
            channels = set(self._channels)
        try:
            connection = self._servers.connect(self._connect_timeout)
            self._greet(connection, channels)
        except BackendError:
            self._connect_at = self._clock.now() + self._timers.jitter(self._pause)
            self._pause = min(2 * self._pause, RECONNECT_DELAYS_S[1])
            raise
        with self._lock:
            self.connection = connection
            if late := self._channels - channels:
                self._order("SUBSCRIBE", *late)
        self._sent_at = self.complete_until = began_at
        self._pause = RECONNECT_DELAYS_S[0]
        self._session.on_live()

    def _greet(self, connection: Connection, channels: set[bytes]) -> None:
        try:
            [_] = connection.ask(("HELLO", 3))  # so that requests and messages can share it
            connection.socket.sendall(packed("SUBSCRIBE", *channels))
            missing = set(channels)
            while missing:
                for answer in connection.read():
                    if isinstance(answer, Exception):
                        raise answer
                    missing.discard(answer[1])  # a message tells nothing that is not read anyway
            connection.socket.setblocking(False)
        except BROKEN as error:
            connection.close()
            raise translate(error, connection.where) from None

    def _work(self) -> None:
        due = self._due()
        if self.connection is not None and due is not None and self._clock.now() >= due:
            # Without a session no heartbeat finds that data is gone. Any script does.
            self.ask(Request("time", (), lambda _: None))
        super()._work()

    def _due(self) -> float | None:
        if not self._is_wanted or self._host._until is not None:
            return None
        return self._connect_at if self.connection is None else self._sent_at + self._ping_interval

    def _push(self, message: list[Any]) -> None:
        match message:
            case [b"message", channel, text]:
                self._session.on_message(channel, text)
            case [b"subscribe", channel, _]:
                self._session.on_subscribed(channel)

    def _take(
        self, request: Request[Any], connection: Connection, answer: Any, copies: Any = None
    ) -> None:
        is_error = isinstance(answer, Exception)
        if not is_error:
            self.complete_until = request.sent_at
        super()._take(request, connection, answer, copies)
        if is_error and self.connection is connection:
            # It may have been the answer to `SUBSCRIBE`.
            self._drop(translate(answer, connection.where))

    def _drop(self, error: BackendError) -> None:
        was_live = self.connection is not None
        self._connect_at = self._clock.now()
        super()._drop(error)
        if was_live:
            self._session.on_silence(self.complete_until, error.reason)
