"""A kazoo client of the application's, whose session the backend shares."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import Close, Connect
from kazoo.protocol.states import Callback, KeeperState

from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import Clock
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import in_thread
from coordlock.runtime.worker import Worker
from coordlock_zookeeper.session import SessionClient

__all__ = ["GivenClient", "sharing"]

_PROBE_TIMEOUT: Final = 5.0


class GivenClient(SessionClient):
    """A started `KazooClient` of the application's, which goes on using it and stops it itself.

    A caller of kazoo may block, for ever when the connection has gone: see `connection`, which an
    `OwnClient` has. But coordlock's callers are event loops, or have deadlines. So a thread makes
    the requests, ``sender``'s.
    """

    shared = True

    def __init__(self, client: Any, clock: Clock, sender: Worker) -> None:
        self.client = client
        self._sender = sender
        self._clock = clock
        self._ttl = 0.0

    def start(self, connected: Callable[[], None], failed: Callable[[str], None]) -> None:
        def probe() -> None:
            if not self.client.connected:
                failed("the given KazooClient is not connected")
                return
            problem = "no server answered"
            for host, port in self.client.hosts:
                try:
                    self._ttl = self._negotiate(host, port)
                except OSError as error:
                    problem = f"{host}:{port}: {error.strerror or error}"
                else:
                    connected()
                    return
            failed(problem)

        # kazoo's thread for events; for that for answers, see `ZookeeperSession`.
        mark = partial(setattr, THREAD, "must_not_wait", True)
        self.client.handler.dispatch_callback(Callback("watch", mark, ()))
        in_thread("coordlock-zookeeper-probe", probe)

    def call(self, request: Any, answer: Any) -> None:
        # kazoo returns False for some errors, but puts them into ``answer`` too.
        self._sender.run(partial(self.client._call, request, answer))

    def ttl(self) -> float:
        return self._ttl  # as if all servers granted the same

    def born(self) -> float:
        # kazoo sends something at least every third of the time-to-live. The report of the last
        # time may not have arrived, that of the time before has.
        return self._clock.now() - 2 / 3 * self._ttl

    def _negotiate(self, host: str, port: int) -> float:
        """The time-to-live that a server grants for the timeout that the client asks for.

        kazoo keeps the granted one in a local variable. So another session asks again, and ends at
        once.
        """
        asked = self.client._session_timeout
        with self.dial(host, port, _PROBE_TIMEOUT) as connection:
            answer = connection.makefile("rb")
            hello = Connect(0, 0, asked, 0, b"\0" * 16, False).serialize()
            connection.sendall(struct.pack("!i", len(hello)) + hello)
            length, _, granted = struct.unpack("!iii", answer.read(12).ljust(12, b"\0"))
            if granted <= 0:
                raise OSError("the server refuses new sessions")
            answer.read(length - 8)  # else the server might not see the next request
            connection.sendall(struct.pack("!iii", 8, 1, Close.type))
            return float(granted) / 1000

    def stop(self) -> None:
        """Nothing: the application stops it."""

    def dial(self, host: str, port: int, timeout: float) -> socket.socket:
        client = self.client
        connection: socket.socket = client.handler.create_connection(
            (host, port),
            timeout=timeout,
            use_ssl=client.use_ssl,
            ca=client.ca,
            certfile=client.certfile,
            keyfile=client.keyfile,
            keyfile_password=client.keyfile_password,
            verify_certs=client.verify_certs,
            hostname=host,
            check_hostname=client.check_hostname,
        )
        return connection


def sharing(client: object, clock: Clock) -> Callable[[], GivenClient]:
    """Makes connections by ``client``, which must be a started `KazooClient` with usual threads.

    Raises `ConfigurationError` for another.
    """
    if not isinstance(client, KazooClient):
        raise ConfigurationError(f"client must be a KazooClient, not a {type(client).__name__}")
    if not isinstance(client.handler, SequentialThreadingHandler):
        raise ConfigurationError("client must use kazoo's threading handler")
    if client.client_state == KeeperState.CLOSED:
        raise ConfigurationError("client is not started: call its start() before")
    sender = Worker("coordlock-zookeeper-sender", must_not_wait=True)
    return lambda: GivenClient(client, clock, sender)
