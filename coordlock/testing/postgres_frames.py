"""PostgreSQL's wire protocol, as far as naming its messages goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from coordlock.testing.frames import Frame, Message

__all__ = ["PostgresFrames"]

#: What a client sends before its first message with a type: whether TLS or GSSAPI is to be used.
_NEGOTIATIONS: Final = (80877103, 80877104)
_VERB: Final = re.compile(rb"coordlock\.request\('(\w+)'")
#: The types of the messages that end a request and its answer.
_END_OF_REQUEST: Final = b"SQXp"
_END_OF_REPLY: Final = b"ZR"


class PostgresFrames:
    """Names coordlock's requests by their verbs, such as ``enqueue``; others are ``other``.

    A frame is a whole request, which may be several of the protocol's messages, or its answer.
    Notifications come as answers to nothing.
    """

    def __init__(self) -> None:
        self._asked: list[tuple[int, str]] = []
        self._count = 0
        self._has_begun = False
        self._sent = b""
        self._received = b""
        #: How many answers of a single byte are due.
        self._bytes_due = 0

    def requests(self, data: bytes) -> Iterator[Frame]:
        """Cut what the client sends."""
        self._sent += data
        if not self._has_begun and len(self._sent) >= 8:
            length = int.from_bytes(self._sent[:4])
            if int.from_bytes(self._sent[4:8]) in _NEGOTIATIONS:
                self._bytes_due += 1
            else:
                self._has_begun = True
            body, self._sent = self._sent[:length], self._sent[length:]
            yield Frame(body)
        while self._has_begun and (end := _end(self._sent, _END_OF_REQUEST)):
            body, self._sent = self._sent[:end], self._sent[end:]
            if body[:1] == b"p":
                yield Frame(body)
                continue
            named = _VERB.search(body)
            kind = named[1].decode() if named else "other"
            self._count += 1
            self._asked.append((self._count, kind))
            yield Frame(body, (Message(kind, self._count, body),))

    def replies(self, data: bytes) -> Iterator[Frame]:
        """Cut what the server sends."""
        self._received += data
        while self._bytes_due and self._received:
            self._bytes_due -= 1
            body, self._received = self._received[:1], self._received[1:]
            yield Frame(body)
        while end := _end(self._received, _END_OF_REPLY if self._asked else None):
            body, self._received = self._received[:end], self._received[end:]
            if self._asked and b"Z" in _types(body):
                number, kind = self._asked.pop(0)
                yield Frame(body, (Message(kind, number, body),))
            else:
                yield Frame(body)


def _types(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        yield body[at : at + 1]
        at += 1 + int.from_bytes(body[at + 1 : at + 5])


def _end(data: bytes, types: bytes | None) -> int:
    """Where the first message of these ``types`` ends, or any; 0 if that is yet to come."""
    at = 0
    while len(data) >= at + 5:
        kind = data[at : at + 1]
        at += 1 + int.from_bytes(data[at + 1 : at + 5])
        if len(data) >= at and (types is None or kind in types):
            return at
    return 0
