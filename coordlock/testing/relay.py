"""What stands in front of one server: it accepts connections and watches what passes."""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Callable
from typing import Final, TypeVar

from coordlock.testing.connection import Connection, Faults
from coordlock.testing.counts import Counts
from coordlock.testing.frames import Framer
from coordlock.testing.loop import Loop
from coordlock.testing.trap import Trap

__all__ = ["Relay"]

_T = TypeVar("_T")


class Relay:
    """Accepts the connections to one server on the thread of ``loop``, to which its state belongs.

    ``met`` is called there with each new connection, before anything passes: to choose its faults.
    A server that refuses is dialled again for ``patience`` seconds, before the client is reset: he
    was accepted, and many clients try again where they are refused, but not where they are reset.
    """

    def __init__(
        self,
        host: str,
        port: int,
        framer: Callable[[], Framer],
        loop: Loop,
        met: Callable[[Connection], None] = lambda _: None,
        patience: float = 0.0,
    ) -> None:
        # Found once, so that the loop never waits for a name server.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._family: socket.AddressFamily = found[0]
        self._server = found[4]
        framer()  # one that cannot be made fails here, not in the thread
        self._framer = framer
        self.requests = Faults()
        self.replies = Faults()
        self.traps: list[Trap] = []
        self.counts = Counts()
        self._loop = loop
        self._met = met
        self._patience = patience
        self._connections: list[Connection] = []
        self._error: Exception | None = None
        self._listener = _bind(0)
        self.port: Final = int(self._listener.getsockname()[1])
        self.run(self.listen)

    @property
    def connections(self) -> list[Connection]:
        """Those that are open."""
        return [one for one in self._connections if not one.is_closed]

    def stop(self) -> None:
        """Free the port. Idempotent. Its connections end with the loop.

        Raises what a framer or ``met`` raised: what was counted, caught or chosen cannot be relied
        on then.
        """
        self.run(self._close)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def run(self, order: Callable[[], _T]) -> _T:
        """Run ``order`` on the loop's thread and return its result."""
        return self._loop.run(order)

    def refuse(self) -> None:
        """Refuse new connections."""
        if self._is_listening():
            self._close()
            # Bound but not listening: the kernel refuses connections and keeps the port.
            self._listener = _bind(self.port)

    def listen(self) -> None:
        """Accept new connections."""
        if not self._is_listening():
            self._listener.listen(1024)
            self._loop.selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _is_listening(self) -> bool:
        return self._listener in (self._loop.selector.get_map() or ())

    def _close(self) -> None:
        if self._is_listening():
            self._loop.selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, _listener: object, _events: int) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # it gave up meanwhile
            return
        self.counts.connections += 1
        server = socket.socket(self._family)
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def dial() -> None:
            # After a refusal, the first connect(2) only says that there was one.
            if server.connect_ex(self._server) == errno.ECONNABORTED:
                server.connect_ex(self._server)

        connection = Connection(
            client,
            server,
            self._framer(),
            self.requests,
            self.replies,
            self._loop.selector,
            self._serve,
            dial,
            time.monotonic() + self._patience,
        )
        self._connections = [*self.connections, connection]
        self._loop.connections.append(connection)
        self._loop.touched.add(connection)
        try:
            self._met(connection)
        except Exception as error:
            self._error = error
            connection.reset()

    def _serve(self, connection: Connection, end: object, events: int) -> None:
        self._loop.touched.add(connection)
        if not connection.is_closed and end is connection.server and events & selectors.EVENT_WRITE:
            connection.connected(time.monotonic())
        if connection.is_closed or not events & selectors.EVENT_READ:
            return
        try:
            if end is connection.client:
                self._pass_requests(connection)
            else:
                self._pass_replies(connection)
        except ConnectionResetError:
            connection.reset()
        except Exception as error:
            self._error = error
            connection.reset()

    def _pass_requests(self, connection: Connection) -> None:
        now = time.monotonic()
        for frame in connection.requests.read(now):
            self.counts.add_request(frame)
            for trap in list(self.traps):
                trap.inspect(connection, frame)
            if connection.is_closed or not connection.requests.is_reading:
                return
            connection.requests.forward(frame.data, now)

    def _pass_replies(self, connection: Connection) -> None:
        now = time.monotonic()
        for frame in connection.replies.read(now):
            self.counts.add_reply(frame)
            if not connection.is_closed and connection.loses(frame):
                connection.reset()
            if connection.is_closed or not connection.replies.is_reading:
                return
            if not connection.omits(frame):
                connection.replies.forward(frame.data, now)


def _bind(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    bound.setblocking(False)
    return bound
