"""What Redis publishes: one connection that has subscribed to the client's inbox and more.

A message proves nothing: what it concerns is read. Messages are lost while there is no connection.
So everything is read when the connection is back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from coordlock.errors import BackendError, BackendUnavailable
from coordlock.runtime.clock import Timers
from coordlock_redis.errors import SERVICE, translate
from coordlock_redis.servers import BROKEN, Connection, Servers

__all__ = ["Subscription", "SubscriptionListener"]

#: Seconds before another attempt to connect, from the first to the last.
RECONNECT_DELAYS_S: Final = (0.05, 1.0)
PING: Final = ("PING",)


class SubscriptionListener:
    """What a `Subscription` reports to, in the thread of `RequestThread`."""

    def on_message(self, channel: bytes, message: bytes) -> None:
        """A message came."""

    def on_answer(self) -> None:
        """The server has answered a ping."""

    def on_subscribed(self, channel: bytes) -> None:
        """What happens from now on is reported on this channel."""

    def on_live(self) -> None:
        """The connection is there, with all channels."""

    def on_silence(self, since: float, reason: str) -> None:
        """The connection is gone; all until ``since`` was reported."""


class Subscription:
    """The connection; the thread of `RequestThread` calls what is not said to be safe for threads.

    Args:
        inbox: the channel that is always subscribed to.
        ping_interval: seconds between the requests that try the connection.
    """

    def __init__(self, inbox: bytes, timers: Timers, ping_interval: float, timeout: float) -> None:
        #: The connection, if there is one.
        self.connection: Connection | None = None
        self._lock: Final = threading.RLock()
        self.wake: Callable[[], None] = lambda: None
        self.is_wanted = False
        self.is_live = False
        self.failure: BackendError = BackendUnavailable(SERVICE, "no subscription")
        self._inbox: Final = inbox
        self._timers: Final = timers
        self._ping_interval: Final = ping_interval
        self._timeout: Final = timeout
        self._channels: dict[bytes, int] = {inbox: 1}
        self._orders: list[tuple[str | bytes, ...]] = []
        self.listener = SubscriptionListener()
        self._pause = RECONNECT_DELAYS_S[0]
        self._due = 0.0
        #: When the latest ping was sent, and whether its answer has not come yet.
        self._pinged_at = 0.0
        self._is_pinged = False
        #: All that happened until then has been reported.
        self.complete_until = 0.0

    def subscribe(self, channel: bytes) -> None:
        """Subscribe to ``channel``, too. Safe for threads."""
        with self._lock:
            count = self._channels[channel] = self._channels.get(channel, 0) + 1
            if count == 1:
                self._orders.append(("SUBSCRIBE", channel))
        self.wake()

    def unsubscribe(self, channel: bytes) -> None:
        """Undo one `subscribe`. Safe for threads."""
        with self._lock:
            self._channels[channel] -= 1
            if not self._channels[channel]:
                del self._channels[channel]
                self._orders.append(("UNSUBSCRIBE", channel))
        self.wake()

    def due(self) -> float | None:
        """When something is to be done, by the clock; None for never."""
        if not self.is_wanted:
            return None
        if self.connection is None:
            return self._due
        return self._pinged_at + (self._timeout if self._is_pinged else self._ping_interval)

    def connect_when_due(self, servers: Servers) -> None:
        """Connect if there is no connection; send what is to be sent."""
        now = self._timers.clock.now()
        if self.connection is None and self.is_wanted and now >= self._due:
            self._connect(servers)
        self._obey()

    def _connect(self, servers: Servers) -> None:
        began_at = self._timers.clock.now()
        try:
            connection = servers.connect()
        except BackendError as error:
            self._fail(error)
            return
        with self._lock:
            self._orders.clear()
            channels = list(self._channels)
        try:
            connection.send(("SUBSCRIBE", *channels))
            missing = set(channels)
            while missing:
                event, channel, *message = connection.receive()
                missing.discard(channel)
                if event == b"message":
                    self.listener.on_message(channel, message[0])
        except BROKEN as error:
            connection.close()
            self._fail(translate(error, connection.where))
            return
        self.connection = connection
        self._pinged_at = self.complete_until = began_at
        self._is_pinged = False
        self._pause, self.is_live = RECONNECT_DELAYS_S[0], True
        self.listener.on_live()

    def _fail(self, error: BackendError) -> None:
        self.failure = error
        self._due = self._timers.clock.now() + self._timers.jitter(self._pause)
        self._pause = min(2 * self._pause, RECONNECT_DELAYS_S[1])

    def _obey(self) -> None:
        with self._lock:
            orders, self._orders = self._orders, []
        if not orders or self.connection is None:
            return
        try:
            self.connection.send(*orders)
        except BROKEN as error:
            self.drop(str(error))

    def receive(self) -> None:
        """Report what has come."""
        if (connection := self.connection) is None:
            return
        try:
            found = connection.read()
        except BROKEN as error:
            self.drop(str(error) or type(error).__name__)
            return
        for message in found:
            self._take(message)
            if self.connection is not connection:
                return

    def _take(self, message: Any) -> None:
        match message:
            case [b"message", channel, text]:
                self.listener.on_message(channel, text)
            case Exception():
                self.drop(str(message) or type(message).__name__)
            case [b"pong", _]:
                self.complete_until, self._is_pinged = self._pinged_at, False
                self.listener.on_answer()
            case [b"subscribe", channel, _]:
                self.listener.on_subscribed(channel)

    def check(self) -> None:
        """Ask for an answer now and then, and give up where it does not come."""
        now, due = self._timers.clock.now(), self.due()
        if self.connection is None or due is None or now < due:
            return
        if self._is_pinged:
            self.drop(f"nothing came for {now - self._pinged_at:.1f} s")
        else:
            self._pinged_at, self._is_pinged = now, True
            with self._lock:
                self._orders.append(PING)
            self._obey()

    def drop(self, reason: str, *, is_final: bool = False) -> None:
        """Give up the connection; another one follows unless this is ``is_final``."""
        connection, self.connection = self.connection, None
        was_live, self.is_live = self.is_live, False
        if is_final:
            self.is_wanted = False
        if connection is not None:
            connection.close()
        self._due = self._timers.clock.now()
        self.failure = BackendUnavailable(SERVICE, reason)
        if was_live:
            self.listener.on_silence(self.complete_until, reason)
