"""kazoo's connection, with fewer steps for each frame that is sent and received."""

from __future__ import annotations

import contextlib
import struct
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Auth, Close, ReplyHeader
from kazoo.protocol.states import KeeperState

__all__ = ["Client", "Connection"]

_HEAD: Final = struct.Struct("!ii")
_LENGTH: Final = struct.Struct("!i")
#: So many bytes are sent at once.
_MOST: Final = 65536
#: Requests that only kazoo sends; what it puts there to be told something has no type.
_KAZOOS: Final = frozenset({None, Auth.type, Close.type})
_USABLE: Final = frozenset(
    {KeeperState.CONNECTED, KeeperState.CONNECTED_RO, KeeperState.CONNECTING}
)


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

    Callers may use it while kazoo's I/O thread sleeps: see `coordlock_zookeeper.receiving`.
    """

    #: What of requests that count as sent has yet to be sent.
    rest = b""
    _xid: int

    # In the I/O thread

    def _connect(self, *where: Any) -> Any:
        self.rest = b""
        return super()._connect(*where)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        data, self.rest = self.rest or self._frames(), b""
        if data:
            self._write(data, connect_timeout)
        elif self.client._queue:
            super()._send_request(read_timeout, connect_timeout)

    def _write(self, msg: bytes, timeout: float) -> None:
        try:
            sent = self._socket.send(msg)
        except OSError:
            sent = 0  # kazoo finds out why, and waits where there is no room
        if sent < len(msg):
            super()._write(msg[sent:], timeout)

    def _read_header(self, timeout: float) -> Any:
        frame = self._socket.frame()
        if frame is None:
            return super()._read_header(timeout)
        header, offset = ReplyHeader.deserialize(frame, 0)
        return header, frame, offset

    def _frames(self) -> bytes:
        """Requests that are there, which count as sent from now on."""
        queue, pending, frames = self.client._queue, self.client._pending, b""
        while queue and len(frames) < _MOST:
            request, reply = queue[0]
            if getattr(request, "type", None) in _KAZOOS:
                break
            self._xid = (self._xid % 0x7FFFFFFF) + 1
            body = request.serialize()
            frames += _LENGTH.pack(len(body) + 8) + _HEAD.pack(self._xid, request.type) + body
            pending.append((request, reply, self._xid))  # first: it must be in one of both
            queue.popleft()
        return frames

    # In any thread, while the I/O thread sleeps

    def is_left(self) -> bool:
        """Whether there is something for the I/O thread to do."""
        return bool(self.rest or self.client._queue or self._socket.pending())

    def is_of(self, thread: int) -> bool:
        """Whether no other thread than this one waits for an answer."""
        client = self.client
        under_way = [*list(client._queue), *list(client._pending)]
        return all(getattr(one[1], "thread", 0) == thread for one in under_way)

    def send_now(self) -> bool:
        """Send what can be sent without waiting; whether that is all there is."""
        try:
            self.rest = self.rest or self._frames()
            if self.rest:
                with contextlib.suppress(OSError):  # the I/O thread finds out why
                    self.rest = self.rest[self._socket.send(self.rest) :]
        except BaseException:  # a signal handler has raised
            self.give_up()
            raise
        return not self.rest and not self.client._queue

    def fileno(self) -> int:
        """The socket's descriptor; -1 where that is closed."""
        return int(self._socket.fileno())

    def take(self) -> None:
        """Read what has come, and tell who waits for it."""
        self._socket.read_ahead()
        pending = self.client._pending
        while self._socket.has_frame():
            oldest = pending[0] if pending else None
            try:
                self._read_socket(0)
            except BaseException:
                if oldest is not None and not (pending and pending[0] is oldest):
                    pending.appendleft(oldest)  # it is told that the connection was lost
                raise

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes."""
        return bool(self._socket.has_ended)

    def give_up(self) -> None:
        """Let the I/O thread find the connection lost."""
        self._socket.give_up()
