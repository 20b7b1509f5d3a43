"""kazoo's threads and sockets, with what its client does not offer.

kazoo takes a handler object for its I/O; this one is the usual threading handler and also

* tells the session timeout that the server granted, which kazoo keeps to itself,
* never lets a caller block (see `_Wakeups`),
* tells why connecting failed, and can be aborted at any moment,
* verifies TLS with the host name, and serves responses that TLS has already decrypted.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler

from coordlock.clock import SYSTEM_CLOCK

__all__ = ["Handler"]

_HEAD: Final = struct.Struct("!iii")  # frame length, protocol version, session timeout in ms
_LONGEST_HANDSHAKE: Final = 1024


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """The handler of one `KazooClient`.

    Args:
        timeout: seconds that connecting may take, and the handshake as much again.
        context: for TLS.
        failed: called on the connection's thread, repeatedly, while kazoo pauses because a whole
            round of attempts failed; must not block.
    """

    def __init__(
        self, timeout: float, context: ssl.SSLContext | None, failed: Callable[[], None]
    ) -> None:
        super().__init__()
        self._timeout = timeout
        self._context = context
        self._failed = failed
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = False
        #: The host and port of each server, as configured.
        self.servers: Sequence[tuple[str, int]] = ()
        #: Seconds that the server granted at the last handshake; 0 before the first.
        self.negotiated = 0.0
        #: When the newest attempt to connect began.
        self.dialled = 0.0
        #: Why there is no connection, when there is none.
        self.failure = "no host name could be resolved"

    def sleep_func(self, seconds: float) -> None:
        """Pause between rounds of attempts; kazoo calls this in steps of 0.1 s at most."""
        self._failed()
        time.sleep(seconds)

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        """Start one of kazoo's threads. Its I/O thread raises at the end what it has logged."""

        def run() -> None:
            with contextlib.suppress(Exception):
                func(*args, **kwargs)

        thread = threading.Thread(target=run, name=f"coordlock-zookeeper-{func.__name__}")
        thread.daemon = True
        thread.start()
        return thread

    def abort(self) -> None:
        """End every connection, now and to come, without a farewell. Wakes the I/O thread."""
        with self._lock:
            self._aborted = True
            current = self._socket
        if current is not None:
            with contextlib.suppress(OSError):  # it was not connected any more
                # Not TLS's own, which would pull the rug from under who reads.
                socket.socket.shutdown(current, socket.SHUT_RDWR)

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, **_: Any
    ) -> _Tap:
        """A connection to ``address``, an IP address and a port; raises OSError."""
        self.dialled = SYSTEM_CLOCK.now()
        hostname = hostname or self._name_of(address)
        where = f"{hostname}:{address[1]}"
        try:
            connection = self.dial(address, hostname, self._timeout, track=True)
        except OSError as error:
            hint = "; does this port speak TLS?" if isinstance(error, ssl.SSLError) else ""
            self.failure = f"{where}: {error.strerror or error}{hint}"
            raise
        self.failure = (
            f"{where} accepts connections but does not answer as ZooKeeper does; "
            f"is it the right port, and does it speak {'TLS' if self._context else 'plain TCP'}?"
        )
        return _Tap(connection, self._greeted)

    def dial(
        self, address: tuple[str, int], hostname: str, timeout: float, *, track: bool = False
    ) -> socket.socket:
        """A socket connected to ``address`` within ``timeout`` seconds, with TLS as configured."""
        family, kind, protocol, _, target = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        connection = socket.socket(family, kind, protocol)
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_hostname=hostname)
            if track:
                self._track(connection)
            connection.settimeout(timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect(target)
            if track:
                self._track(connection)  # aborted meanwhile
        except BaseException:
            connection.close()
            raise
        return connection

    def _name_of(self, address: tuple[str, int]) -> str:
        # kazoo before 2.11 doesn't say which host's address it is.
        for host, port in self.servers:
            with contextlib.suppress(OSError):
                if any(found[4][:2] == address for found in socket.getaddrinfo(host, port)):
                    return host
        return address[0]

    def _track(self, connection: socket.socket) -> None:
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("the client is closed")
            self._socket = connection

    def _greeted(self, timeout_ms: int) -> None:
        # Zero says that the session has expired; kazoo starts a new one and greets again.
        if timeout_ms > 0:
            self.negotiated = timeout_ms / 1000
            self.failure = "the connection was lost"

    def create_socket_pair(self) -> tuple[Any, Any]:
        """What wakes the I/O thread, and what it is woken by."""
        if not hasattr(os, "eventfd"):
            pair: tuple[Any, Any] = super().create_socket_pair()
            return pair
        wakeups = _Wakeups()
        return wakeups, wakeups

    def select(
        self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Like ``select``, and a TLS socket with decrypted bytes left is readable."""
        taps = [one for one in rlist if isinstance(one, _Tap)]
        ready = [one for one in taps if one.pending() > 0]
        if any(not one.greeted for one in taps) and timeout is not None:
            # A server that starts or hangs may never answer the handshake; kazoo would wait for
            # the session timeout, and the session would be over.
            timeout = min(timeout, self._timeout)
        readable, writable, broken = super().select(rlist, wlist, xlist, 0 if ready else timeout)
        return ready + [one for one in readable if one not in ready], writable, broken


class _Tap:
    """A socket that reads along the first frame, the server's half of the handshake."""

    def __init__(self, connection: socket.socket, greeted: Callable[[int], None]) -> None:
        self._connection = connection
        self._greeted = greeted
        self._head = b""
        self.recv: Callable[[int], bytes] = self._receive_head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    @property
    def greeted(self) -> bool:
        """Whether the server has answered the handshake."""
        return len(self._head) >= _HEAD.size

    def pending(self) -> int:
        """How many decrypted bytes wait to be read."""
        connection = self._connection
        return connection.pending() if isinstance(connection, ssl.SSLSocket) else 0

    def _receive_head(self, size: int) -> bytes:
        data = self._connection.recv(size)
        self._head += data
        if self.greeted:
            length, _, timeout_ms = _HEAD.unpack_from(self._head)
            # Another protocol's text reads as a length of a gigabyte, which kazoo would wait for.
            if not 0 < length <= _LONGEST_HANDSHAKE:
                raise ConnectionError("the server does not speak ZooKeeper's protocol")
            self._greeted(timeout_ms)
            self.recv = self._connection.recv
        return data


class _Wakeups:
    """Counts requests that wait to be sent; stands in for both ends of kazoo's socket pair.

    kazoo writes a byte per request to a socket pair and reads one per request sent. The pair's
    buffer holds 278 of them on Linux: the next caller blocks until the connection works again.
    An eventfd that counts never fills.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self._fd

    def send(self, data: bytes) -> int:
        # The lock keeps a late writer from a descriptor number that was closed and reused.
        with self._lock:
            if self._fd < 0:
                raise OSError("the connection is closed")
            os.eventfd_write(self._fd, len(data))
        return len(data)

    def recv(self, _: int) -> bytes:
        os.eventfd_read(self._fd)
        return b"\0"

    def close(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
