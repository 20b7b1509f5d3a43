"""ZooKeeper's wire protocol, as far as naming its messages goes.

Every message is a length of four bytes and so many bytes. The first of either direction opens the
session. Later requests start with their xid and their operation, replies with the xid they answer
(``zookeeper.jute``, ``ReplyHeader`` and ``RequestHeader``; ``ZooDefs.OpCode``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from coordlock.testing.frames import Frame, Message

__all__ = ["ZooKeeperFrames"]

_OPERATIONS: Final = {
    -11: "close",
    1: "create",
    2: "delete",
    3: "exists",
    4: "getData",
    5: "setData",
    6: "getACL",
    7: "setACL",
    8: "getChildren",
    9: "sync",
    11: "ping",
    12: "getChildren2",
    13: "check",
    14: "multi",
    15: "create2",
    16: "reconfig",
    17: "checkWatches",
    18: "removeWatches",
    19: "createContainer",
    20: "deleteContainer",
    21: "createTTL",
    22: "multiRead",
    100: "auth",
    101: "setWatches",
    102: "sasl",
    103: "getEphemerals",
    104: "getAllChildrenNumber",
    105: "setWatches2",
    106: "addWatch",
    107: "whoAmI",
}
_EVENT_XID: Final = -1
# A longer "length" is not one: a four-letter word, or TLS.
_LONGEST: Final = 64 * 1024 * 1024


class ZooKeeperFrames:
    """Names ZooKeeper's requests: ``create``, ``create2``, ``getChildren2``, ``ping``, ``close``.

    The message that opens a session is ``connect``. Watch events are replies named ``event``.
    A connection that speaks something else passes as it is.
    """

    def __init__(self) -> None:
        self._asked: dict[int, str] = {}
        self._requests = _Cutter(self._request)
        self._replies = _Cutter(self._reply)

    def requests(self, data: bytes) -> Iterator[Frame]:
        """Cut what the client sends."""
        return self._requests.cut(data)

    def replies(self, data: bytes) -> Iterator[Frame]:
        """Cut what the server sends."""
        return self._replies.cut(data)

    def _request(self, body: bytes) -> Message:
        xid, operation = struct.unpack_from(">ii", body)
        kind = _OPERATIONS.get(operation, f"operation{operation}")
        self._asked[xid] = kind
        return Message(kind, xid, body[8:])

    def _reply(self, body: bytes) -> Message:
        (xid,) = struct.unpack_from(">i", body)
        kind = "event" if xid == _EVENT_XID else self._asked.get(xid, "unknown")
        # Negative xids (pings, authentication, watches) are shared by all requests of their kind.
        if xid >= 0:
            self._asked.pop(xid, None)
        return Message(kind, xid, body[16:])


class _Cutter:
    """One direction of a connection."""

    def __init__(self, name: Callable[[bytes], Message]) -> None:
        self._name = name
        self._buffer = bytearray()
        self._is_open = False
        self._is_foreign = False

    def cut(self, data: bytes) -> Iterator[Frame]:
        self._buffer += data
        while not self._is_foreign and len(self._buffer) >= 4:
            length = int.from_bytes(self._buffer[:4])
            if length > _LONGEST:
                self._is_foreign = True
                break
            if len(self._buffer) < 4 + length:
                return
            frame = bytes(self._buffer[: 4 + length])
            del self._buffer[: 4 + length]
            yield Frame(frame, (self._message(frame[4:]),))
        if self._is_foreign and self._buffer:
            yield Frame(bytes(self._buffer))
            self._buffer.clear()

    def _message(self, body: bytes) -> Message:
        if not self._is_open:
            self._is_open = True
            return Message("connect", None, body)
        return self._name(body)
