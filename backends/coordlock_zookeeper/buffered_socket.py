"""A socket of kazoo's that reads ahead, and tells what the server's handshake granted."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, Final

__all__ = ["BufferedSocket"]

_HEAD: Final = struct.Struct("!iii")  # frame length, protocol version, session timeout in ms
_LONGEST_HANDSHAKE: Final = 1024
#: What is read at once: a few hundred answers, or the list of a thousand contenders.
_CHUNK: Final = 65536


class BufferedSocket:
    """Reads all that has arrived in one call, where kazoo asks for each part of each frame.

    Args:
        connection: the socket.
        greeted: told the session timeout in milliseconds, from the server's half of the handshake.
    """

    def __init__(self, connection: socket.socket, greeted: Callable[[int], None]) -> None:
        self._connection = connection
        self._greeted = greeted
        self._head = b""
        self._ahead = b""
        self._taken = 0
        self._end: OSError | bytes | None = None
        #: What of requests that count as sent has yet to be sent.
        self.rest = b""
        self.recv: Callable[[int], bytes] = self._receive_head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    @property
    def greeted(self) -> bool:
        """Whether the server has answered the handshake."""
        return len(self._head) >= _HEAD.size

    def pending(self) -> int:
        """Not 0 when `recv` answers at once: with data, or with how the connection ended."""
        if ahead := len(self._ahead) - self._taken:
            return ahead
        if self._end is not None:
            return 1
        connection = self._connection
        return connection.pending() if isinstance(connection, ssl.SSLSocket) else 0

    @property
    def is_plain(self) -> bool:
        """Whether one thread may send while another one waits for it to be readable: no TLS."""
        return not isinstance(self._connection, ssl.SSLSocket)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes, but what was read ahead."""
        return self._end is not None

    def frame(self) -> bytes | None:
        """Take the next frame, without its length; None where it has not been read ahead."""
        data, start = self._ahead, self._taken + 4
        if not self.greeted or len(data) < start:
            return None
        end = start + int.from_bytes(data[self._taken : start], "big", signed=True)
        if not start <= end <= len(data):
            return None
        self._taken = end
        return data[start:end]

    def read_ahead(self) -> None:
        """Read what there is. For a socket that does not block."""
        if self._end is not None:
            return
        try:
            data = self._connection.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return  # a part of a TLS record
        except OSError as error:
            self._end = error
            return
        if data:
            self._ahead, self._taken = self._ahead[self._taken :] + data, 0
        else:
            self._end = data

    def give_up(self) -> None:
        """End the connection; what has come is not looked at any more."""
        self._end = b""
        self._ahead, self._taken = b"", 0
        with contextlib.suppress(OSError):  # it was not connected any more
            self._connection.shutdown(socket.SHUT_RDWR)

    def _receive(self, size: int) -> bytes:
        if self._taken < len(self._ahead):
            data = self._ahead[self._taken : self._taken + size]
            self._taken += len(data)
            return data
        if isinstance(self._end, OSError):
            raise self._end
        return self._connection.recv(size) if self._end is None else self._end

    def _receive_head(self, size: int) -> bytes:
        data = self._receive(size)
        self._head += data
        if self.greeted:
            length, _, timeout_ms = _HEAD.unpack_from(self._head)
            # Another protocol's text reads as a length of a gigabyte, which kazoo would wait for.
            if not 0 < length <= _LONGEST_HANDSHAKE:
                raise ConnectionError("the server does not speak ZooKeeper's protocol")
            self._greeted(timeout_ms)
            self.recv = self._receive
        return data
