"""Redis's wire protocol, as far as naming its messages goes.

A request is an array of texts, and the replies come in the order of the requests. What a
subscriber hears is a reply without a request, in RESP3 a push.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from coordlock.testing.frames import Frame, Message

__all__ = ["RedisFrames"]

_END: Final = b"\r\n"
#: What is told to subscribers, and answers their requests.
_EVENTS: Final = (b"message", b"subscribe", b"unsubscribe", b"pong")


class RedisFrames:
    """Names requests by their command, in capitals: ``GET``, ``INFO``.

    ``EVALSHA`` and ``EVAL`` are of the kind of their first argument behind the keys, if that is a
    word: coordlock's scripts have their names there, such as ``enqueue``. Messages to subscribers
    are replies named ``event``.
    """

    def __init__(self) -> None:
        self._asked: list[tuple[int, str]] = []
        self._count = 0
        self._requests = _Cutter(self._request)
        self._replies = _Cutter(self._reply)

    def requests(self, data: bytes) -> Iterator[Frame]:
        """Cut what the client sends."""
        return self._requests.cut(data)

    def replies(self, data: bytes) -> Iterator[Frame]:
        """Cut what the server sends."""
        return self._replies.cut(data)

    def _request(self, body: bytes) -> Message:
        words = _words(body)
        kind = words[0].decode("utf-8", "replace").upper() if words else ""
        if kind in ("EVAL", "EVALSHA") and len(words) > 3:
            first = words[3 + int(words[2])] if len(words) > 3 + int(words[2]) else b""
            kind = first.decode() if first.isalpha() else kind
        self._count += 1
        if kind not in ("SUBSCRIBE", "UNSUBSCRIBE"):
            self._asked.append((self._count, kind))
        return Message(kind, self._count, body)

    def _reply(self, body: bytes) -> Message:
        if body.startswith(b">"):
            return Message("event", None, body)
        if body.startswith(b"*") and _words(body)[:1] and _words(body)[0] in _EVENTS:
            if _words(body)[0] == b"pong" and self._asked:
                self._asked.pop(0)
            return Message("event", None, body)
        number, kind = self._asked.pop(0) if self._asked else (None, "event")
        return Message(kind, number, body)


class _Cutter:
    """Cuts one direction of a connection."""

    def __init__(self, name: Callable[[bytes], Message]) -> None:
        self._name: Final = name
        self._left = b""

    def cut(self, data: bytes) -> Iterator[Frame]:
        self._left += data
        while self._left:
            end = _end(self._left, 0)
            if end is None:
                return
            body, self._left = self._left[:end], self._left[end:]
            yield Frame(body, (self._name(body),))


def _end(data: bytes, start: int) -> int | None:
    """Where the value that begins at ``start`` ends; None if the rest is yet to come."""
    line = data.find(_END, start)
    if line < 0:
        return None
    kind, end = data[start : start + 1], line + 2
    if kind == b"$":
        length = int(data[start + 1 : line])
        end += length + 2 if length >= 0 else 0
        return end if end <= len(data) else None
    if kind in (b"*", b">", b"%"):
        count = int(data[start + 1 : line]) * (2 if kind == b"%" else 1)
        for _ in range(count):
            found = _end(data, end)
            if found is None:
                return None
            end = found
    return end


def _words(body: bytes) -> list[bytes]:
    """The texts of an array; those of nested ones, too."""
    words: list[bytes] = []
    at = 0
    while at < len(body):
        line = body.find(_END, at)
        kind, size = body[at : at + 1], body[at + 1 : line]
        at = line + 2
        if kind == b"$" and int(size) >= 0:
            words.append(body[at : at + int(size)])
            at += int(size) + 2
    return words
