"""kazoo's connection, with fewer steps for each frame that is sent and received."""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Auth, Close, ReplyHeader
from kazoo.protocol.states import KeeperState

__all__ = ["Client", "Connection"]

_HEAD: Final = struct.Struct("!ii")
_LENGTH: Final = struct.Struct("!i")
#: So many bytes are sent at once.
_MAX_SEND: Final = 65536
#: Requests that only kazoo sends; what it puts there to be told something has no type.
_KAZOOS: Final = frozenset({None, Auth.type, Close.type})
_USABLE: Final = frozenset(
    {KeeperState.CONNECTED, KeeperState.CONNECTED_RO, KeeperState.CONNECTING}
)
#: A request, what takes its answer, and its number.
_Sent = tuple[Any, Any, int]


class Client(KazooClient):  # type: ignore[misc]
    """kazoo's client; Ctrl-C is not lost while something is asked for."""

    def _call(self, request: Any, async_object: Any) -> bool | None:
        if self._state not in _USABLE:
            return bool(super()._call(request, async_object))  # it is told why
        self._queue.append((request, async_object))
        try:
            self._connection._write_sock.send(b"\0")
        except (OSError, AttributeError):  # it has been closed meanwhile
            async_object.set_exception(ConnectionClosedError("Connection has been closed"))
        return None


class Connection(ConnectionHandler):  # type: ignore[misc]
    """Sends the requests that are there at once, and takes frames as a whole.

    Callers may send by it while kazoo's I/O thread sleeps: see `io_thread.Wakeups`.
    """

    _socket: Any = None
    _xid: int
    #: The socket of the connection that was given up last.
    _given_up: Any = None

    @property
    def rest(self) -> bytes:
        """What of requests that count as sent has yet to be sent."""
        return b"" if self._socket is None else bytes(self._socket.rest)

    # In the I/O thread

    def _expand_client_hosts(self) -> Any:
        # kazoo resolves the names anew for each round.
        addresses = super()._expand_client_hosts()
        self.handler.divide(len(addresses))
        return addresses

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        socket = self._socket
        data, socket.rest = socket.rest or self._frames(self.client._pending), b""
        if data:
            self._write(data, connect_timeout)
        elif self.client._queue:
            super()._send_request(read_timeout, connect_timeout)

    def _read_header(self, timeout: float) -> Any:
        frame = self._socket.frame()
        if frame is None:
            return super()._read_header(timeout)
        header, offset = ReplyHeader.deserialize(frame, 0)
        return header, frame, offset

    def _frames(self, pending: deque[_Sent]) -> bytes:
        """Requests that are there, which count as sent from now on."""
        queue, frames = self.client._queue, b""
        for sent in list(queue):
            request, reply = sent
            if len(frames) >= _MAX_SEND or getattr(request, "type", None) in _KAZOOS:
                break
            xid = self._xid = (self._xid % 0x7FFFFFFF) + 1
            body = request.serialize()
            frames += _LENGTH.pack(len(body) + 8) + _HEAD.pack(xid, request.type) + body
            pending.append((request, reply, xid))  # first: it must be in one of both
            with contextlib.suppress(ValueError):  # it has failed with the connection
                queue.remove(sent)
        return frames

    def abandon(self) -> None:
        """Give it up while another thread is in the midst of using it, which then does no harm."""
        self.give_up()
        self.client._pending = deque(self.client._pending)

    # In any thread, while the I/O thread sleeps

    @property
    def current(self) -> tuple[Any, deque[_Sent]]:
        """The socket, and the requests that were sent by it and have no answer yet."""
        return self._socket, self.client._pending

    def send_now(self, socket: Any, pending: deque[_Sent]) -> bool:
        """Send what can be sent without waiting; whether that is all there is.

        Nothing is sent where ``socket`` and ``pending`` are not `current` any more.
        """
        if socket is not self._socket or pending is not self.client._pending:
            return False
        try:
            socket.rest = socket.rest or self._frames(pending)
            if socket.rest:
                with contextlib.suppress(OSError):  # the I/O thread finds out why
                    socket.rest = socket.rest[socket.send(socket.rest) :]
        except BaseException:  # a signal handler has raised
            self._end(socket)
            raise
        finally:
            while pending and pending is not self.client._pending:  # see `abandon`
                pending.popleft()[1].set_exception(ConnectionLoss())
        return not socket.rest and not self.client._queue

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes."""
        return bool(self._socket.has_ended)

    def give_up(self) -> None:
        """Let the I/O thread find the connection lost."""
        self._end(self._socket)

    @property
    def comes_again(self) -> bool:
        """Whether the connection was given up here, and the next one is not there yet."""
        given_up = self._given_up
        return given_up is not None and (given_up is self._socket or not self.client.connected)

    def _end(self, socket: Any) -> None:
        self._given_up = socket
        socket.give_up()
