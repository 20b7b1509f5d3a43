"""A TCP proxy that does to a connection what networks do, at the moment a test chooses.

::

    with FaultProxy("127.0.0.1", server_port, ZooKeeperFrames) as proxy:
        client = connect(f"zookeeper://127.0.0.1:{proxy.port}")

        proxy.delay(0.05)                     # 50 ms each way
        proxy.replies.black_hole()            # requests arrive, answers do not
        proxy.refuse()                        # no new connections
        proxy.drop_connections()              # reset those that are open
        proxy.heal()                          # all is well again

        proxy.on_request("create2", Connection.lose_reply)
        with proxy.counting() as sent:
            client.lock("x").acquire()        # its first create succeeds, and looks as if it failed
        assert sent.requests["create2"] == 1

What a black hole holds back is delivered at `heal`, as a network would deliver what was sent
again; reset the connections first to lose it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Self, TypeVar

from coordlock.testing.connection import Connection, Faults, Pipe
from coordlock.testing.frames import Frame, Framer, RawFrames
from coordlock.testing.trap import Action, BytesTrap, MessageTrap, Trap

__all__ = ["Counts", "Direction", "FaultProxy"]

_T = TypeVar("_T")
_PATIENCE: Final = 30.0


@dataclass
class Counts:
    """What passed the proxy: counted on arrival, whether it was forwarded or not.

    Attributes:
        connections: how many were accepted.
        sent, received: bytes from the client, and from the server.
        requests, replies: messages by kind, where the proxy was given a framer.
    """

    connections: int = 0
    sent: int = 0
    received: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    replies: Counter[str] = field(default_factory=Counter)

    def copy(self) -> Counts:
        """The same counts, which do not change any more."""
        return self - Counts()

    def __sub__(self, earlier: Counts) -> Counts:
        return Counts(
            self.connections - earlier.connections,
            self.sent - earlier.sent,
            self.received - earlier.received,
            self.requests - earlier.requests,
            self.replies - earlier.replies,
        )


class Direction:
    """Faults of one direction of every connection, those to come included.

    ``proxy.requests`` is from client to server, ``proxy.replies`` from server to client.
    """

    def __init__(self, proxy: FaultProxy, faults: Faults) -> None:
        self._proxy = proxy
        self._faults = faults

    def black_hole(self) -> None:
        """Hold back everything, ends of connections too, until `FaultProxy.heal`."""
        self._set(is_held=True)

    def delay(self, seconds: float) -> None:
        """Deliver everything so much later, in order. Latency only: throughput is not limited."""
        self._set(delay=seconds)

    def cut_after(self, size: int) -> None:
        """Forward so many more bytes, then close the connection that carries the next one."""
        self._set(allowance=size)

    def _set(self, **faults: object) -> None:
        self._proxy.run(lambda: self._faults.__dict__.update(faults))


class FaultProxy:
    """A proxy on a free port of 127.0.0.1 to one server; a context manager.

    One thread serves all connections. All methods may be called from any thread, and have taken
    effect when they return.

    Args:
        host, port: the server's.
        framer: the protocol to count and to wait for: `ZooKeeperFrames`, `GrpcFrames`, or a
            class of your own. None where bytes suffice, and with TLS.
    """

    host: Final = "127.0.0.1"

    def __init__(self, host: str, port: int, framer: Callable[[], Framer] = RawFrames) -> None:
        self._server = (host, port)
        self._framer = framer
        self._faults = {"requests": Faults(), "replies": Faults()}
        self.requests = Direction(self, self._faults["requests"])
        self.replies = Direction(self, self._faults["replies"])
        self._counts = Counts()
        self._request_traps: list[Trap] = []
        self._reply_traps: list[Trap] = []
        self._connections: list[Connection] = []
        self._selector = selectors.DefaultSelector()
        self._orders: deque[Callable[[], None]] = deque()
        self._wakeup, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._listener = self._bind(0)
        self._listen()
        self._is_running = True
        self._thread = threading.Thread(target=self._loop, name="fault-proxy", daemon=True)

    @property
    def port(self) -> int:
        """The port that clients connect to; it stays the same for the proxy's life."""
        return int(self._listener.getsockname()[1])

    # Faults --------------------------------------------------------------------------------------

    def black_hole(self) -> None:
        """Hold back everything in both directions: a partition that nobody is told of."""
        self.requests.black_hole()
        self.replies.black_hole()

    def delay(self, seconds: float) -> None:
        """Delay both directions: a round trip takes twice as much longer."""
        self.requests.delay(seconds)
        self.replies.delay(seconds)

    def refuse(self) -> None:
        """Refuse new connections; open ones stay."""
        self.run(self._refuse)

    def drop_connections(self, *, reset: bool = True) -> None:
        """End all connections, with a reset or in order. New ones are accepted."""

        def drop() -> None:
            for connection in self._connections:
                if reset:
                    connection.reset()
                else:
                    connection.close()

        self.run(drop)

    @contextlib.contextmanager
    def losing_replies(self) -> Iterator[None]:
        """Within the block, requests arrive and replies do not; then all connections are reset."""
        self.replies.black_hole()
        try:
            yield
        finally:
            self.drop_connections()
            self.heal()

    def heal(self) -> None:
        """Lift all faults and traps. What was held back or delayed is delivered at once."""

        def heal() -> None:
            for faults in self._faults.values():
                faults.heal()
            self._request_traps.clear()
            self._reply_traps.clear()
            for connection in self._connections:
                connection.release()
            self._listen()

        self.run(heal)

    # Traps ---------------------------------------------------------------------------------------

    def on_request(
        self, kind: str, action: Action, *, containing: bytes = b"", nth: int = 1
    ) -> Trap:
        """Do ``action`` once, when the ``nth`` fitting request comes, before it is forwarded.

        ``kind`` may be a pattern: ``create*``. Actions are `Connection.lose_reply`,
        ``lose_request``, ``postpone_request``, ``reset``, ``close``, ``black_hole``, or your own
        function of a `Connection` and a `Message`. Needs a framer.
        """
        return self._set_trap(self._request_traps, MessageTrap(kind, containing, action, nth))

    def on_reply(self, kind: str, action: Action, *, containing: bytes = b"", nth: int = 1) -> Trap:
        """The same for what the server sends."""
        return self._set_trap(self._reply_traps, MessageTrap(kind, containing, action, nth))

    def on_bytes(self, pattern: bytes, action: Action, *, nth: int = 1) -> Trap:
        """Do ``action`` once, when a client has sent ``pattern``; needs no framer.

        What came before the frame in which the pattern ends may be forwarded already.
        """
        return self._set_trap(self._request_traps, BytesTrap(pattern, action, nth))

    def _set_trap(self, traps: list[Trap], trap: Trap) -> Trap:
        self.run(lambda: traps.append(trap))
        return trap

    # Counts --------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """What has passed since the proxy started."""
        return self.run(self._counts.copy)

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counts]:
        """Counts that are filled in when the block ends, with what passed within it."""
        before, within = self.counts(), Counts()
        yield within
        within.__dict__.update((self.counts() - before).__dict__)

    # Life ----------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start serving; `with` does it."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Reset all connections and free the port. Idempotent."""
        if self._thread.is_alive():
            self.drop_connections()
            self.run(lambda: setattr(self, "_is_running", False))
            self._thread.join(_PATIENCE)
        for closed in (self._listener, self._wakeup, self._waker, self._selector):
            closed.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, order: Callable[[], _T]) -> _T:
        """Run ``order`` on the proxy's thread and return its result; for faults of your own."""
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

    # The thread ----------------------------------------------------------------------------------

    def _loop(self) -> None:
        while self._is_running:
            now = time.monotonic()
            dues = [due for c in self._connections if (due := c.due) is not None]
            timeout = max(0.0, min(dues) - now) if dues else None
            for key, events in self._selector.select(timeout):
                if key.fileobj is self._wakeup:
                    self._wakeup.recv(4096)
                elif key.fileobj is self._listener:
                    self._accept()
                elif not key.data.is_closed:
                    self._serve(key.data, key.fileobj, events)
            while self._orders:
                self._orders.popleft()()
            now = time.monotonic()
            for connection in self._connections:
                connection.flush(now)
            self._connections = [c for c in self._connections if not c.is_closed]

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # it gave up meanwhile
            return
        self._counts.connections += 1
        server = socket.socket()
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex(self._server)
        faults = self._faults
        connection = Connection(
            client, server, self._framer(), faults["requests"], faults["replies"], self._selector
        )
        self._connections.append(connection)

    def _serve(self, connection: Connection, end: object, events: int) -> None:
        if end is connection.server and events & selectors.EVENT_WRITE:
            connection.connected()
        if connection.is_closed or not events & selectors.EVENT_READ:
            return
        now = time.monotonic()
        is_request = end is connection.client
        pipe = connection.requests if is_request else connection.replies
        for frame in pipe.read(now):
            self._count(frame, is_request)
            for trap in list(self._request_traps if is_request else self._reply_traps):
                trap.inspect(connection, frame)
                if connection.is_closed:
                    return
            if not is_request and connection.loses(frame):
                connection.reset()
                return
            if is_request or not connection.discards_replies:
                self._forward(connection, pipe, frame.data, now)
                if connection.is_closed or not pipe.is_reading:
                    return

    def _forward(self, connection: Connection, pipe: Pipe, data: bytes, now: float) -> None:
        allowance = pipe.faults.allowance
        if allowance is None:
            pipe.push(data, now)
        elif len(data) <= allowance:
            pipe.push(data, now)
            pipe.faults.allowance = allowance - len(data)
        else:
            pipe.faults.allowance = None
            pipe.push(data[:allowance], now)
            pipe.break_off(now)

    def _count(self, frame: Frame, is_request: bool) -> None:
        counts = self._counts
        if is_request:
            counts.sent += len(frame.data)
            counts.requests.update(message.kind for message in frame.messages)
        else:
            counts.received += len(frame.data)
            counts.replies.update(message.kind for message in frame.messages)

    def _refuse(self) -> None:
        if self._selector.get_map().get(self._listener):
            port = self.port
            self._selector.unregister(self._listener)
            self._listener.close()
            # Bound but not listening: the kernel refuses connections and gives the port to nobody.
            self._listener = self._bind(port)

    def _listen(self) -> None:
        if not self._selector.get_map().get(self._listener):
            self._listener.listen(1024)
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _bind(self, port: int) -> socket.socket:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((self.host, port))
        bound.setblocking(False)
        return bound
