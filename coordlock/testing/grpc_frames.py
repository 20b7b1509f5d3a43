"""gRPC's wire protocol, as far as naming its messages goes.

An HTTP/2 connection is a sequence of frames (RFC 9113, section 4.1). A call is a stream: a HEADERS
frame names the method, DATA frames carry messages, each with five bytes before it (gRPC over
HTTP/2: "Length-Prefixed-Message").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from coordlock.testing.frames import Frame, Message

if TYPE_CHECKING:
    from hpack import Decoder

__all__ = ["GrpcFrames"]

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER: Final = 9
_DATA, _HEADERS, _RST_STREAM, _CONTINUATION = 0x0, 0x1, 0x3, 0x9
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x4, 0x8, 0x20


class GrpcFrames:
    """Names gRPC messages by their method: ``Txn``, ``Range``, ``LeaseKeepAlive``, ``Watch``.

    Every message of a stream counts, so that each heartbeat of a long stream is a
    ``LeaseKeepAlive``. An answer without a message, an error, counts as a reply too. Needs the
    package ``hpack``; a connection that speaks something else, or TLS, passes as it is.
    """

    def __init__(self) -> None:
        from hpack import Decoder  # here, because only looking into gRPC needs it

        self._methods: dict[int, str] = {}
        self._requests = _Cutter(self._methods, Decoder(), _PREFACE)
        self._replies = _Cutter(self._methods, None, b"")

    def requests(self, data: bytes) -> Iterator[Frame]:
        """Cut what the client sends."""
        for frame in self._requests.cut(data):
            self._replies.is_foreign = self._requests.is_foreign
            yield frame

    def replies(self, data: bytes) -> Iterator[Frame]:
        """Cut what the server sends."""
        return self._replies.cut(data)


class _Cutter:
    """One direction of a connection; the one with a ``decoder`` learns the methods' names."""

    def __init__(self, methods: dict[int, str], decoder: Decoder | None, preface: bytes) -> None:
        self._methods = methods
        self._decoder = decoder
        self._preface = preface
        self._buffer = bytearray()
        self._header_block = bytearray()
        self._partial: dict[int, bytearray] = {}
        self._answered: set[int] = set()
        self.is_foreign = False

    def cut(self, data: bytes) -> Iterator[Frame]:
        self._buffer += data
        if self._preface and not self.is_foreign:
            start = bytes(self._buffer[: len(self._preface)])
            if not self._preface.startswith(start):
                self.is_foreign = True
            elif start == self._preface:
                del self._buffer[: len(start)]
                self._preface = b""
                yield Frame(start)
            else:
                return
        if self.is_foreign:
            if self._buffer:
                yield Frame(bytes(self._buffer))
                self._buffer.clear()
            return
        while len(self._buffer) >= _HEADER:
            end = _HEADER + int.from_bytes(self._buffer[:3])
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[:end])
            del self._buffer[:end]
            yield Frame(frame, tuple(self._messages(frame)))

    def _messages(self, frame: bytes) -> Iterator[Message]:
        kind, flags = frame[3], frame[4]
        stream = int.from_bytes(frame[5:9]) & 0x7FFF_FFFF
        body = frame[_HEADER:]
        if kind in (_DATA, _HEADERS) and flags & _PADDED:
            body = body[1 : len(body) - body[0]]
        if kind == _DATA:
            yield from self._data(stream, body)
        elif kind in (_HEADERS, _CONTINUATION):
            if kind == _HEADERS and flags & _PRIORITY:
                body = body[5:]
            self._header_block += body
            if flags & _END_HEADERS:
                self._headers(stream)
        if kind == _RST_STREAM or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self._partial.pop(stream, None)
            if self._decoder is None:
                yield from self._last_reply(stream)

    def _last_reply(self, stream: int) -> Iterator[Message]:
        if stream not in self._answered:
            yield Message(self._method(stream), stream, b"")
        self._answered.discard(stream)
        self._methods.pop(stream, None)

    def _headers(self, stream: int) -> None:
        block = bytes(self._header_block)
        self._header_block.clear()
        if self._decoder is None:
            return
        # Every block is decoded: each may change the table that later ones refer to.
        for name, value in self._decoder.decode(block, raw=True):
            if name == b":path":
                self._methods[stream] = bytes(value).rpartition(b"/")[2].decode()

    def _data(self, stream: int, body: bytes) -> Iterator[Message]:
        partial = self._partial.setdefault(stream, bytearray())
        partial += body
        while len(partial) >= 5:
            end = 5 + int.from_bytes(partial[1:5])
            if len(partial) < end:
                return
            payload = bytes(partial[5:end])
            del partial[:end]
            if self._decoder is None:
                self._answered.add(stream)
            yield Message(self._method(stream), stream, payload)

    def _method(self, stream: int) -> str:
        return self._methods.get(stream, "unknown")
