"""Cutting a byte stream into frames, and telling what a frame says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Frame", "Framer", "Message", "RawFrames"]


@dataclass(frozen=True, slots=True)
class Message:
    """One request or reply of a protocol.

    Attributes:
        kind: what is counted and waited for: the name of the request, ``create2`` or ``Txn``. A
            reply is of its request's kind; what was not asked for is an ``event``.
        number: ties a reply to its request; None where any reply is taken for the answer.
        payload: the message as sent, without the protocol's own header.
    """

    kind: str
    number: int | None
    payload: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """The smallest piece of a stream that is forwarded, held or lost as a whole.

    ``messages`` are those that are complete with this frame.
    """

    data: bytes
    messages: tuple[Message, ...] = ()


class Framer(Protocol):
    """Knows a protocol; one instance follows one connection.

    Each method takes the next bytes of one direction and yields the frames that are complete now.
    All bytes come out again, in order.
    """

    def requests(self, data: bytes) -> Iterator[Frame]:
        """Cut what the client sends."""

    def replies(self, data: bytes) -> Iterator[Frame]:
        """Cut what the server sends."""


class RawFrames:
    """Knows no protocol: whatever arrives at once is a frame, and says nothing."""

    def requests(self, data: bytes) -> Iterator[Frame]:
        """One frame."""
        yield Frame(data)

    replies = requests
