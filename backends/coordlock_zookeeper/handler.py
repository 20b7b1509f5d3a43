"""kazoo's threads and sockets, with what its client does not offer.

kazoo takes a handler object for its I/O; this one is the usual threading handler and also

* tells the session timeout that the server granted, which kazoo keeps to itself
  (see `BufferedSocket`),
* never lets a caller block (see `Wakeups`), and spares system calls and turns of threads,
* tells why connecting failed, and can be aborted at any moment,
* verifies TLS with the host name, and serves responses that TLS has already decrypted.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sized
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import Callback

from coordlock.backend.poll import Poll
from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock.runtime.process import THREAD
from coordlock_zookeeper.buffered_socket import BufferedSocket
from coordlock_zookeeper.connection import Connection
from coordlock_zookeeper.io_thread import Wakeups

__all__ = ["Handler"]

log = Log("coordlock.zookeeper")

#: How often it does what is there before it looks at the system for more: requests must not keep
#: answers waiting.
_MAX_PASSED: Final = 8


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """The handler of one `KazooClient`.

    Args:
        seconds: what a round of attempts at all servers may take. It must end before the session.
        context: for TLS.
        answered: hosts and ports that have answered as ZooKeeper does; others are added.
    """

    def __init__(
        self,
        seconds: float,
        context: ssl.SSLContext | None,
        answered: set[str],
        clock: Clock,
    ) -> None:
        super().__init__()
        self._seconds = seconds
        #: How long one attempt may take, and its handshake as much again.
        self._timeout = seconds / 2
        self._context = context
        self._answered = answered
        self._clock = clock
        #: The host and port of the newest connection.
        self._where = ""
        self._lock = threading.RLock()
        self._socket: socket.socket | None = None
        self._aborted = False
        #: When to abort, by `time.monotonic`.
        self._end: float | None = None
        self._poll = Poll()
        #: How often in a row there was something to do, so that it did not wait.
        self._passed = 0
        #: Called with `failure`, on the connection's thread, repeatedly, while kazoo pauses because
        #: a whole round of attempts failed; must not block.
        self.failed: Callable[[str], None] | None = None
        #: What kazoo has yet to send.
        self.requests: Callable[[], Sized] = tuple
        #: What callers may send by, too.
        self.connection: Connection | None = None
        #: Seconds that the server granted at the last handshake; 0 before the first.
        self.negotiated = 0.0
        #: When the newest attempt to connect began.
        self.dialled = 0.0
        #: Why there is no connection, by host, port and address, the latest last.
        self._failures: dict[tuple[str, object], str] = {}

    @property
    def failure(self) -> str:
        """Why there is no connection, when there is none: each address has its own reason."""
        reasons = dict.fromkeys(self._failures.values())
        return "; ".join(reasons) or "no host name could be resolved"

    def sleep_func(self, seconds: float) -> None:
        """Pause between rounds of attempts; kazoo calls this in steps of 0.1 s at most."""
        if (failed := self.failed) is not None:
            failed(self.failure)
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
        with self._lock:
            self._aborted = True
            current = self._socket
        if current is not None:
            with contextlib.suppress(OSError):  # it was not connected any more
                # Not TLS's own, which would pull the rug from under the reading thread.
                socket.socket.shutdown(current, socket.SHUT_RDWR)

    def divide(self, addresses: int) -> None:
        """A round of attempts at so many addresses begins: a name may have several."""
        self._timeout = max(1.0, self._seconds / (2 * max(1, addresses)))

    def abort_in(self, seconds: float) -> None:
        """Let the I/O thread abort so many seconds after it has something to do; at once for 0."""
        self._end = time.monotonic() + seconds
        if not seconds:
            self.abort()

    def _abort_on_time(self) -> None:
        if self._end is not None and time.monotonic() >= self._end:
            self._end = None
            self.abort()

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, **_: Any
    ) -> BufferedSocket:
        """A connection to ``address``, an IP address and a port; raises OSError."""
        self.dialled = self._clock.now()
        hostname = hostname or address[0]
        where = self._where = f"{hostname}:{address[1]}"
        try:
            connection = self.dial(address, hostname, self._timeout, track=True)
        except OSError as error:
            hint = "; does this port speak TLS?" if isinstance(error, ssl.SSLError) else ""
            self._failures[where, address] = f"{where}: {error.strerror or error}{hint}"
            raise
        failure = f"{where} accepts connections but does not answer"
        if where not in self._answered:
            failure += (
                " as ZooKeeper does; is it the right port, and does it speak "
                f"{'TLS' if self._context else 'plain TCP'}?"
            )
        self._failures[where, address] = failure
        return BufferedSocket(connection, self._greeted)

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

    def _track(self, connection: socket.socket) -> None:
        self._abort_on_time()
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("the client is closed")
            self._socket = connection

    def _greeted(self, timeout_ms: int) -> None:
        # Zero says that the session has expired; kazoo starts a new one and greets again.
        if timeout_ms > 0:
            self.negotiated = timeout_ms / 1000
            self._answered.add(self._where)
            self._failures = {("", None): "the connection was lost"}

    def create_socket_pair(self) -> tuple[Any, Any]:
        """What wakes the I/O thread, and what it is woken by."""
        wakeups = Wakeups(self.requests)
        return wakeups, wakeups

    def select(
        self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Like ``select``, where a socket that was read ahead is readable."""
        if not rlist:
            return [], Poll().ready([], wlist, timeout), []
        for source in rlist:
            if isinstance(source, Wakeups):
                rest = [other for other in rlist if other is not source]
                return self._awaited(source, rest, timeout), [], []
        readable = [source for source in rlist if source.pending() > 0]
        if not readable:
            if timeout is not None and not all(source.greeted for source in rlist):
                # A server that starts or hangs may never answer the handshake; kazoo would wait for
                # the session timeout, and the session would be over.
                timeout = min(timeout, self._timeout)
            readable = Poll().ready(rlist, timeout=timeout)
            for source in readable:
                source.read_ahead()
        return readable, [], []

    def _awaited(self, wakeups: Wakeups, sockets: list[Any], timeout: float | None) -> list[Any]:
        """Which of both have something to do; nothing only after ``timeout`` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        if sockets and self.connection is not None and sockets[0].is_plain:
            wakeups.share(self.connection)
        while True:
            self._abort_on_time()
            is_ready = any(source.pending() > 0 for source in sockets)
            is_ready = not wakeups.falls_asleep() or is_ready
            found: list[Any] = []
            self._passed = self._passed + 1 if is_ready else 0
            if not is_ready or self._passed > _MAX_PASSED:
                self._passed = 0
                patience = 0.0 if is_ready else self._limited(timeout)
                found = self._poll.ready([wakeups, *sockets], timeout=patience)
            wakeups.awakes(wakeups in found)
            for source in found:
                if source is not wakeups:
                    source.read_ahead()
            with_work = [source for source in sockets if source.pending() > 0]
            if wakeups.left():
                with_work.append(wakeups)
            if until is not None:
                timeout = max(0.0, until - time.monotonic())
            # To find nothing means to kazoo that the time is over.
            if with_work or timeout == 0:
                return with_work

    def _limited(self, timeout: float | None) -> float | None:
        """``timeout``, or the time until it is to abort."""
        if self._end is None:
            return timeout
        left = max(0.0, self._end - time.monotonic())
        return left if timeout is None else min(timeout, left)
