"""kazoo's connection, with fewer steps for each frame that is sent and received."""

from __future__ import annotations

from typing import Any

from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import ReplyHeader

__all__ = ["Connection"]


class Connection(ConnectionHandler):  # type: ignore[misc]
    """Sends without asking first whether that is possible, and takes frames as a whole."""

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
