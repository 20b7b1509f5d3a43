"""The thread of a fault proxy: it accepts connections and moves their bytes."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from coordlock.testing.connection import Connection, Faults
from coordlock.testing.counts import Counts
from coordlock.testing.frames import Frame, Framer
from coordlock.testing.trap import Trap

__all__ = ["Relay"]

_T = TypeVar("_T")
_PATIENCE: Final = 30.0


class Relay:
    """Serves all connections of a proxy in one thread.

    Its state belongs to that thread; others reach it with `run`.
    """

    def __init__(self, host: str, port: int, framer: Callable[[], Framer]) -> None:
        # Found once, so that the loop never waits for a name server.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._family: socket.AddressFamily = found[0]
        self._server = found[4]
        framer()  # one that cannot be made fails here, not in the thread
        self._framer = framer
        self.requests = Faults()
        self.replies = Faults()
        self.request_traps: list[Trap] = []
        self.reply_traps: list[Trap] = []
        self.connections: list[Connection] = []
        self.counts = Counts()
        self._error: Exception | None = None
        self._selector = selectors.DefaultSelector()
        self._orders: deque[Callable[[], None]] = deque()
        self._wakeup, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._listener = _bind(0)
        self.port: Final = int(self._listener.getsockname()[1])
        self.listen()
        self._is_running = True
        self._thread = threading.Thread(target=self._loop, name="fault-proxy", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Reset all connections, end the thread, free the port. Idempotent.

        Raises what a framer raised: counts and traps cannot be relied on then.
        """
        self.run(self._finish)
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)
        for closed in (self._listener, self._wakeup, self._waker, self._selector):
            closed.close()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def run(self, order: Callable[[], _T]) -> _T:
        """Run ``order`` on the thread and return its result."""
        if not self._thread.is_alive() or threading.current_thread() is self._thread:
            return order()
        done: Future[_T] = Future()

        def obey() -> None:
            try:
                done.set_result(order())
            except Exception as error:
                done.set_exception(error)

        self._orders.append(obey)
        with contextlib.suppress(BlockingIOError):  # full: it will wake up anyway
            self._waker.send(b"!")
        return done.result(_PATIENCE)

    def refuse(self) -> None:
        """Refuse new connections."""
        if self._is_listening():
            self._selector.unregister(self._listener)
            self._listener.close()
            # Bound but not listening: the kernel refuses connections and gives the port to nobody.
            self._listener = _bind(self.port)

    def listen(self) -> None:
        """Accept new connections."""
        if not self._is_listening():
            self._listener.listen(1024)
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _is_listening(self) -> bool:
        return self._listener in self._selector.get_map()

    def _finish(self) -> None:
        for connection in self.connections:
            connection.reset()
        self._is_running = False

    def _loop(self) -> None:
        while self._is_running:
            dues = [due for c in self.connections if (due := c.due) is not None]
            timeout = max(0.0, min(dues) - time.monotonic()) if dues else None
            for key, events in self._selector.select(timeout):
                if key.fileobj is self._wakeup:
                    self._wakeup.recv(4096)
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._serve(key.data, key.fileobj, events)
            while self._orders:
                self._orders.popleft()()
            now = time.monotonic()
            for connection in self.connections:
                connection.flush(now)
            self.connections = [c for c in self.connections if not c.is_closed]

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # it gave up meanwhile
            return
        self.counts.connections += 1
        server = socket.socket(self._family)
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex(self._server)
        self.connections.append(
            Connection(client, server, self._framer(), self.requests, self.replies, self._selector)
        )

    def _serve(self, connection: Connection, end: object, events: int) -> None:
        if not connection.is_closed and end is connection.server and events & selectors.EVENT_WRITE:
            connection.connected()
        if connection.is_closed or not events & selectors.EVENT_READ:
            return
        try:
            if end is connection.client:
                self._pass_requests(connection)
            else:
                self._pass_replies(connection)
        except Exception as error:
            self._error = error
            connection.reset()

    def _pass_requests(self, connection: Connection) -> None:
        now = time.monotonic()
        for frame in connection.requests.read(now):
            self.counts.add_request(frame)
            _inspect(self.request_traps, connection, frame)
            if connection.is_closed or not connection.requests.is_reading:
                return
            connection.requests.forward(frame.data, now)

    def _pass_replies(self, connection: Connection) -> None:
        now = time.monotonic()
        for frame in connection.replies.read(now):
            self.counts.add_reply(frame)
            _inspect(self.reply_traps, connection, frame)
            if not connection.is_closed and connection.loses(frame):
                connection.reset()
            if connection.is_closed or not connection.replies.is_reading:
                return
            if not connection.is_orphan:
                connection.replies.forward(frame.data, now)


def _inspect(traps: list[Trap], connection: Connection, frame: Frame) -> None:
    for trap in list(traps):
        trap.inspect(connection, frame)


def _bind(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    bound.setblocking(False)
    return bound
