"""What passed a proxy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from coordlock.testing.frames import Frame

__all__ = ["Counts"]


@dataclass
class Counts:
    """What passed the proxy: counted on arrival, frame by frame, whether forwarded or not.

    Attributes:
        connections: how many were accepted.
        sent, received: bytes from the client, and from the server.
        requests, replies: messages by kind, where the proxy was given a framer.
    """

    connections: int = 0
    sent: int = 0
    received: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    replies: Counter[str] = field(default_factory=Counter)

    def add_request(self, frame: Frame) -> None:
        """Count what the client sent."""
        self.sent += len(frame.data)
        self.requests.update(message.kind for message in frame.messages)

    def add_reply(self, frame: Frame) -> None:
        """Count what the server sent."""
        self.received += len(frame.data)
        self.replies.update(message.kind for message in frame.messages)

    def copy(self) -> Counts:
        """The same counts, which do not change any more."""
        return self - Counts()

    def __sub__(self, earlier: Counts) -> Counts:
        return Counts(
            self.connections - earlier.connections,
            self.sent - earlier.sent,
            self.received - earlier.received,
            self.requests - earlier.requests,
            self.replies - earlier.replies,
        )
