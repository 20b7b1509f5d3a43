"""The session's connection: heartbeats, and what Redis publishes to the client.

A message proves nothing: what it concerns is read. Messages are lost while there is no connection.
So everything is read when the connection is back.

The answer to a request comes behind all earlier messages, so it shows what has been reported.
"""

from __future__ import annotations

from math import inf
from typing import Any, ClassVar, Final, Protocol, TypeVar

from coordlock.errors import BackendError
from coordlock.runtime.clock import Timers
from coordlock.runtime.promise import Promise
from coordlock_redis.errors import BROKEN, translate
from coordlock_redis.pipeline import IOThread, Pipeline
from coordlock_redis.requests import Request, ScriptContext
from coordlock_redis.servers import Connection, Servers, packed

__all__ = ["Subscription"]

T = TypeVar("T")

#: Seconds before another attempt to connect at most, where nothing is asked.
RECONNECT_DELAY_S: Final = 1.0


class Subscriber(Protocol):
    """Called by the thread that receives."""

    def on_message(self, channel: bytes, message: bytes) -> None:
        """A message came."""

    def on_subscribed(self, channel: bytes) -> None:
        """What happens from now on is reported on this channel."""

    def on_silence(self, since: float, reason: str) -> None:
        """The connection is gone; all until ``since`` was reported."""


class _Order(Request[None]):
    """``SUBSCRIBE`` or ``UNSUBSCRIBE``, whose answers are pushed."""

    answers: ClassVar[int] = 0

    def command(self, context: ScriptContext, connection: Connection) -> bytes:
        return packed(self.name, *self.arguments)


def _order(name: str, *channels: bytes) -> _Order:
    return _Order(name, channels, lambda _: None)


class Subscription(Pipeline):
    """A connection of its own, which no other request holds up. It is kept once it was needed.

    Args:
        channels: what is always subscribed to.
        ping_interval: seconds without a request until the connection is tried by one.
    """

    def __init__(
        self,
        thread: IOThread,
        servers: Servers,
        context: ScriptContext,
        timers: Timers,
        replicas: int,
        channels: tuple[bytes, ...],
        ping_interval: float,
        session: Subscriber,
    ) -> None:
        super().__init__(thread, servers, context, timers.clock, servers.timeout, replicas)
        self._timers: Final = timers
        self._ping_interval: Final = ping_interval
        self._session: Final = session
        self._channels: Final = set(channels)
        #: When to connect next, though nothing is asked; once something was.
        self._connect_at = inf
        #: All that happened until then has been reported.
        self.complete_until = 0.0

    def ask(self, request: Request[T]) -> Promise[T]:
        """Send ``request``; its promise."""
        self._connect_at = min(self._connect_at, self._clock.now())
        return super().ask(request)

    def subscribe(self, channel: bytes) -> None:
        """Subscribe to ``channel``, too. Safe for threads."""
        self._channels.add(channel)
        self.ask(_order("SUBSCRIBE", channel))

    def unsubscribe(self, channel: bytes) -> None:
        """Undo `subscribe`. Safe for threads."""
        self._channels.discard(channel)
        if self.connection is not None:
            self.ask(_order("UNSUBSCRIBE", channel))

    # For the thread for I/O

    def work(self) -> None:
        if self.connection is not None and self._clock.now() >= self._own_due:
            # Without a session no heartbeat finds that data is gone. Any script does.
            self.ask(Request("time", (), lambda _: None))
        super().work()

    def due(self) -> float:
        return min(super().due(), self._own_due)

    @property
    def _own_due(self) -> float:
        """When to connect or to try the connection, though nothing is asked."""
        if self._thread.refusal is not None:
            return inf
        return self._connect_at if self.connection is None else self._sent_at + self._ping_interval

    def _needs_connection(self) -> bool:
        return bool(self._asked) or self._clock.now() >= self._own_due

    def _connect(self) -> Connection:
        try:
            connection = super()._connect()
            try:
                connection.ask("HELLO", 3)  # so that requests and messages can share it
            except BROKEN as error:
                connection.close()
                raise translate(error, connection.where) from None
        except BackendError:
            self._connect_at = self._clock.now() + self._timers.jitter(RECONNECT_DELAY_S)
            raise
        self._asked.insert(0, _order("SUBSCRIBE", *self._channels))
        return connection

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
            self._break(answer)

    def drop(self, error: BackendError) -> None:
        was_live = self.connection is not None
        self._connect_at = self._clock.now()
        super().drop(error)
        if was_live:
            self._session.on_silence(self.complete_until, error.reason)
