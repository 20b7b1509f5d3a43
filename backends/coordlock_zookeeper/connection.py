"""The kazoo client under a session: one of our own, or one that was given."""

from __future__ import annotations

import logging
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.serialization import Close, Connect
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from coordlock.log import Log
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock_zookeeper.access import Access
from coordlock_zookeeper.errors import is_out_of_turn
from coordlock_zookeeper.handler import Handler

__all__ = ["Connection", "Given", "Owned"]

log = Log("coordlock.zookeeper")

# Pauses between rounds of attempts to reconnect: they double from the first to the longest.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# Seconds that closing waits for the server's farewell before it hangs up.
_GRACE: Final = 2.0
_PROBE_TIMEOUT: Final = 5.0
_LENGTH: Final = struct.Struct("!i")


class Connection(Protocol):
    """What a session needs of its client."""

    #: A `KazooClient`; kazoo has no types.
    client: Any
    #: Whether others use the client and its session too.
    shared: bool

    def start(self, connected: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Connect, without blocking.

        ``connected`` is called once, from any thread, when there is a session and `ttl` is known.
        ``failed`` is called, perhaps repeatedly, with the reason why a round of attempts failed.
        """

    def ttl(self) -> float:
        """The time-to-live in seconds that the server granted."""

    def born(self) -> float:
        """A moment before the leader last heard of a session that has just been opened."""

    def crash(self) -> BaseException | None:
        """What the client's I/O thread died of, which kazoo only logs."""

    def stop(self) -> None:
        """End the session and the connection, if they are our own. Blocks for a bounded time."""

    def servers(self) -> list[tuple[str, int]]:
        """The host and port of each server."""

    def dial(self, host: str, port: int, timeout: float) -> socket.socket:
        """A separate connection to a server, made as the session's is; raises OSError."""


class Owned:
    """A client of our own that lives for one session.

    When a session has expired, kazoo starts another by itself. A request sent in that moment would
    belong to it, and its znode to nobody. So the client goes when its first session ends, and takes
    such late-comers along.
    """

    shared = False

    def __init__(self, access: Access) -> None:
        self._failed: Callable[[str], None] = _ignore
        self._stopping = threading.Lock()
        # A round of attempts, each with a handshake, shall end before the session does.
        attempts = 2 * (access.hosts.count(",") + 1)
        attempt = max(1.0, min(access.connect_timeout, access.ttl) / attempts)
        self._log = _KazooLog()
        self._handler = Handler(attempt, access.tls, self._round_failed)
        self.client = KazooClient(
            hosts=access.hosts,
            timeout=access.ttl,
            handler=self._handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_FIRST_PAUSE,
                max_delay=_LONGEST_PAUSE,
                sleep_func=self._handler.sleep_func,
            ),
            command_retry=KazooRetry(max_tries=0, sleep_func=self._handler.sleep_func),
            auth_data=[("digest", access.digest)] if access.digest else None,
            sasl_options=access.sasl,
            logger=self._log,
        )

    def start(self, connected: Callable[[], None], failed: Callable[[str], None]) -> None:
        """See `Connection`."""
        self._failed = failed
        self._handler.servers = self.client.hosts
        self._handler.requests = lambda: self.client._queue

        def changed(state: str) -> bool:
            if state == KazooState.CONNECTED:
                connected()
            return True  # kazoo drops the listener

        self.client.add_listener(changed)
        self.client.start_async()

    def _round_failed(self) -> None:
        self._failed(self._handler.failure)

    def crash(self) -> BaseException | None:
        """See `Connection`."""
        return self._log.crash

    def ttl(self) -> float:
        """See `Connection`. May change when the client reconnects to another server."""
        return self._handler.negotiated

    def born(self) -> float:
        """See `Connection`. The session is asked for after dialling."""
        return self._handler.dialled

    def stop(self) -> None:
        """See `Connection`."""
        self._failed = _ignore
        # Without a connection there is nobody to say goodbye to; with one that is silent, not long.
        hang_up = threading.Timer(_GRACE if self.client.connected else 0.0, self._handler.abort)
        hang_up.daemon = True
        hang_up.start()
        try:
            # One after the other: kazoo lets the second of two return before it has stopped.
            with self._stopping:
                self.client.stop()
                self.client.close()
        except Exception as error:
            log.warning("closing a ZooKeeper client failed: %s", error)
        finally:
            hang_up.cancel()
            hang_up.join()

    def servers(self) -> list[tuple[str, int]]:
        """See `Connection`."""
        return list(self.client.hosts)

    def dial(self, host: str, port: int, timeout: float) -> socket.socket:
        """See `Connection`."""
        return self._handler.dial((host, port), host, timeout)


class Given:
    """A started `KazooClient` of the application's, which goes on using it and stops it itself.

    ``client`` is what `unblocked` made of it.
    """

    shared = True

    def __init__(self, client: Any) -> None:
        self.client = client
        self._ttl = 0.0

    def start(self, connected: Callable[[], None], failed: Callable[[str], None]) -> None:
        """See `Connection`."""

        def probe() -> None:
            problem = "no server answered"
            for host, port in self.servers():
                try:
                    self._ttl = self._negotiate(host, port)
                except OSError as error:
                    problem = f"{host}:{port}: {error.strerror or error}"
                else:
                    connected()
                    return
            failed(problem)

        if not self.client.connected:
            failed("the given KazooClient is not connected")
            return
        threading.Thread(target=probe, name="coordlock-zookeeper-probe", daemon=True).start()

    def crash(self) -> BaseException | None:
        """See `Connection`. Whoever gave the client has its log."""
        return None

    def ttl(self) -> float:
        """See `Connection`. Assumes that all servers grant the same."""
        return self._ttl

    def born(self) -> float:
        """See `Connection`.

        kazoo sends something at least every third of the time-to-live; the report of the last time
        may not have arrived, that of the time before has.
        """
        return SYSTEM_CLOCK.now() - 2 / 3 * self._ttl

    def _negotiate(self, host: str, port: int) -> float:
        """What a server grants for the timeout that the client asks for.

        kazoo keeps the answer that it got in a local variable. So the same question is asked once
        more, by a session that ends at once.
        """
        asked = self.client._session_timeout
        with self.dial(host, port, _PROBE_TIMEOUT) as connection:
            hello = Connect(0, 0, asked, 0, b"\0" * 16, False).serialize()
            connection.sendall(_LENGTH.pack(len(hello)) + hello)
            answer, _ = Connect.deserialize(_frame(connection), 0)
            connection.sendall(struct.pack("!iii", 8, 1, Close.type))
            if answer.time_out <= 0:
                raise OSError("the server refuses new sessions")
            return float(answer.time_out) / 1000

    def stop(self) -> None:
        """See `Connection`."""

    def servers(self) -> list[tuple[str, int]]:
        """See `Connection`."""
        return list(self.client.hosts)

    def dial(self, host: str, port: int, timeout: float) -> socket.socket:
        """See `Connection`."""
        client = self.client
        names = {}
        if hasattr(client, "check_hostname"):  # since kazoo 2.11
            names = {"hostname": host, "check_hostname": client.check_hostname}
        connection: socket.socket = client.handler.create_connection(
            (host, port),
            timeout=timeout,
            use_ssl=client.use_ssl,
            ca=client.ca,
            certfile=client.certfile,
            keyfile=client.keyfile,
            keyfile_password=client.keyfile_password,
            verify_certs=client.verify_certs,
            **names,
        )
        return connection


def _frame(connection: socket.socket) -> bytes:
    """One length-prefixed frame of at most a kilobyte."""
    stream = connection.makefile("rb")
    (length,) = _LENGTH.unpack(stream.read(_LENGTH.size).ljust(_LENGTH.size, b"\0"))
    if not 0 < length <= 1024:
        raise OSError("the server does not speak ZooKeeper's protocol")
    data = stream.read(length)
    if len(data) < length:
        raise OSError("the server closed the connection")
    return data


def _ignore(_: str) -> None:
    pass


class _KazooLog(Log):
    """Where one kazoo client logs: errors only unless told otherwise, and never debug messages.

    Those show whole requests, passwords among them.
    """

    def __init__(self) -> None:
        super().__init__(f"{log.name}.kazoo")
        self.crash: BaseException | None = None
        if self.logger.level == logging.NOTSET:
            self.logger.setLevel(logging.ERROR)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        return level >= logging.INFO and super().isEnabledFor(level)

    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Keep the error that the I/O thread is about to die of."""
        self.crash = error = sys.exc_info()[1]
        # What the service or the network does is told to whoever has the session.
        if not isinstance(error, KazooException) and not is_out_of_turn(error):
            super().exception(msg, *args, **kwargs)
