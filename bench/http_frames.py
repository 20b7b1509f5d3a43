"""HTTP/1.1, as far as naming its messages goes: what some speak to etcd's JSON gateway.

A message is a head, which ends with an empty line, and a body: as long as the head says, in chunks,
to the end of the connection, or none (RFC 9112, section 6.3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final

from coordlock.testing.frames import Frame, Message

__all__ = ["HttpFrames"]

_LINE: Final = b"\r\n"
#: What is cut next; None: more must come first.
_Steps = Generator[Frame | None, None, bytes]


@dataclass(frozen=True)
class _Start:
    """What a start line says of its message."""

    kind: str
    number: int
    #: An interim reply is part of the one that follows.
    counts: bool = True
    #: There is none, whatever the head says.
    has_body: bool = True
    #: Where the head names no length.
    until_end: bool = False


class HttpFrames:
    """Names requests by the last part of their path: ``txn``, ``range``, ``grant``, ``keepalive``.

    Replies come in the order of the requests, and are of their kind. A message counts when all of
    it has passed, a reply without an end when it begins. What is not HTTP/1.1 raises `ValueError`.
    """

    def __init__(self) -> None:
        self._asked: deque[tuple[str, _Start]] = deque()
        self._number = 0
        self._requests = _Cutter(self._request)
        self._replies = _Cutter(self._reply)

    def requests(self, data: bytes) -> Iterator[Frame]:
        """Cut what the client sends."""
        return self._requests.cut(data)

    def replies(self, data: bytes) -> Iterator[Frame]:
        """Cut what the server sends."""
        return self._replies.cut(data)

    def _request(self, line: str) -> _Start:
        method, target, version = line.split(" ")
        _check(version)
        self._number += 1
        start = _Start(target.partition("?")[0].rpartition("/")[2], self._number)
        self._asked.append((method, start))
        return start

    def _reply(self, line: str) -> _Start:
        version, status = line.split(" ")[:2]
        _check(version)
        if not self._asked:
            raise ValueError(f"nobody asked for {line!r}")
        method, asked = self._asked[0]
        if status.startswith("1"):
            return _Start(asked.kind, asked.number, counts=False, has_body=False)
        self._asked.popleft()
        has_body = method != "HEAD" and status not in ("204", "304")
        return _Start(asked.kind, asked.number, has_body=has_body, until_end=True)


class _Cutter:
    """One direction of a connection; ``begin`` understands its start lines."""

    def __init__(self, begin: Callable[[str], _Start]) -> None:
        self._begin = begin
        self._buffer = bytearray()
        self._cut = self._messages()

    def cut(self, data: bytes) -> Iterator[Frame]:
        self._buffer += data
        return iter(lambda: next(self._cut), None)

    def _messages(self) -> Generator[Frame | None, None, None]:
        while True:
            head = yield from self._through(_LINE + _LINE)
            line, *fields = head.decode("latin-1").rstrip().split("\r\n")
            start = self._begin(line)
            named = (field.partition(":") for field in fields)
            said = {name.lower(): value.strip() for name, _, value in named}
            length = int(said.get("content-length", "0"))
            if start.has_body and said.get("transfer-encoding", "").lower() == "chunked":
                yield Frame(head)
                yield from self._chunks(start)
            elif start.has_body and "content-length" not in said and start.until_end:
                yield Frame(head, _message(start))
                while True:
                    rest = yield from self._take(len(self._buffer))
                    yield Frame(rest) if rest else None
            elif start.has_body and length:
                yield Frame(head)
                body = yield from self._take(length)
                yield Frame(body, _message(start, body))
            else:
                yield Frame(head, _message(start))

    def _chunks(self, start: _Start) -> Generator[Frame | None, None, None]:
        body = bytearray()
        while True:
            line = yield from self._through(_LINE)
            size = int(line.partition(b";")[0], 16)
            if not size:
                break
            chunk = yield from self._take(size + len(_LINE))
            body += chunk[:size]
            yield Frame(line + chunk)
        end = line
        while line != _LINE:  # fields may follow, and an empty line does
            line = yield from self._through(_LINE)
            end += line
        yield Frame(end, _message(start, bytes(body)))

    def _through(self, mark: bytes) -> _Steps:
        """What comes up to ``mark``, and that."""
        while (at := self._buffer.find(mark)) < 0:
            yield None
        return (yield from self._take(at + len(mark)))

    def _take(self, size: int) -> _Steps:
        """The next ``size`` bytes."""
        while len(self._buffer) < size:
            yield None
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def _message(start: _Start, body: bytes = b"") -> tuple[Message, ...]:
    return (Message(start.kind, start.number, body),) if start.counts else ()


def _check(version: str) -> None:
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise ValueError(f"not HTTP/1.1: {version!r}")
