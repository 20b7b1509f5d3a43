"""kazoo's threads and sockets, with what its client does not offer.

kazoo takes a handler object for its I/O; this one is the usual threading handler and also

* notes the session timeout that the server granted, which kazoo keeps to itself,
* runs what answers and events call in the I/O thread, which spares turns of threads,
* explains why connecting failed, and can be aborted at any moment,
* verifies TLS with the host name.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import Callback

from coordlock.backend.poll import ready
from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock.runtime.process import THREAD
from coordlock_zookeeper.connection import BufferedSocket, Connection

__all__ = ["Handler"]

log = Log("coordlock.zookeeper")


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """The handler of one `KazooClient`.

    Args:
        seconds: what a round of attempts at all servers may take. It must end before the session.
        context: for TLS.

    Attributes:
        connection: the client's. This and ``failed`` are set before its start.
        patience: how long one attempt may take, and its handshake as much again, in seconds.
        failed: called on the connection's thread, repeatedly, while kazoo pauses because a whole
            round of attempts failed, with the reason of each address; must not block.
        negotiated: seconds that the server granted at the last handshake; 0 before the first.
        dialled: when the newest attempt to connect began.
    """

    connection: Connection
    failed: Callable[[str], None]

    def __init__(self, seconds: float, context: ssl.SSLContext | None, clock: Clock) -> None:
        super().__init__()
        self._seconds = seconds
        self.patience = seconds / 2
        self._context = context
        self._clock = clock
        self._socket: socket.socket | None = None
        self._aborted = False
        self.negotiated = 0.0
        self.dialled = 0.0
        #: Why the attempts of this round have failed.
        self._failures: list[str] = []

    def sleep_func(self, seconds: float) -> None:
        """Pause between rounds of attempts; kazoo calls this in steps of 0.1 s at most."""
        reasons = dict.fromkeys(self._failures)
        self.failed("; ".join(reasons) or "no host name could be resolved")
        time.sleep(seconds)

    def dispatch_callback(self, callback: Callback) -> None:
        """Run ``callback`` in its order among answers and events, in the I/O thread.

        kazoo runs what an event calls in a thread of its own, which each handoff would wait for.
        """
        try:
            callback.func(*callback.args)
        except Exception:
            log.exception("a callback for an event failed")

    def start(self) -> None:
        """Start none of the threads that kazoo has for answers and events."""

    def stop(self) -> None:
        """Nothing runs."""

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        """Start kazoo's I/O thread, which raises at the end what it has logged."""

        def run() -> None:
            THREAD.must_not_wait = True
            with contextlib.suppress(Exception):
                func(*args, **kwargs)

        thread = threading.Thread(target=run, name="coordlock-zookeeper", daemon=True)
        thread.start()
        return thread

    def abort(self) -> None:
        """End every connection, now and to come, without a farewell. Wakes the I/O thread."""
        self._aborted = True
        if (current := self._socket) is not None:
            with contextlib.suppress(OSError):  # it was not connected any more
                # Not TLS's own, which would pull the rug from under the reading thread.
                socket.socket.shutdown(current, socket.SHUT_RDWR)

    def divide(self, addresses: int) -> None:
        """A round of attempts at so many addresses begins: a name may have several."""
        self._failures.clear()
        self.patience = max(1.0, self._seconds / (2 * max(1, addresses)))

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, **_: Any
    ) -> BufferedSocket:
        """A connection to ``address``, an IP address and a port; raises OSError."""
        self.dialled = self._clock.now()
        hostname = hostname or address[0]
        where = f"{hostname}:{address[1]}"
        try:
            connection = self.dial(address, hostname, self.patience)
        except OSError as error:
            hint = "; does this port speak TLS?" if isinstance(error, ssl.SSLError) else ""
            self._failures.append(f"{where}: {error.strerror or error}{hint}")
            raise
        self._failures.append(
            f"{where} accepts connections but does not answer as ZooKeeper does; is it the right "
            f"port, and does it speak {'TLS' if self._context else 'plain TCP'}?"
        )
        return BufferedSocket(connection)

    def dial(self, address: tuple[str, int], hostname: str, timeout: float) -> socket.socket:
        """A socket connected to ``address`` within ``timeout`` seconds, with TLS as configured."""
        family, kind, protocol, _, target = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        connection = socket.socket(family, kind, protocol)
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_hostname=hostname)
            self._socket = connection
            connection.settimeout(timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._aborted:
                connection.connect(target)
            if self._aborted:  # perhaps meanwhile
                raise ConnectionAbortedError("the client is closed")
        except BaseException:
            connection.close()
            raise
        return connection

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """What wakes the I/O thread: see `Connection.wake`."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        return reader, writer

    def select(
        self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As kazoo's connection calls it: it waits for work, or until it can send."""
        if wlist:
            return [], ready([], wlist, timeout), []
        return self.connection.wait(timeout), [], []
