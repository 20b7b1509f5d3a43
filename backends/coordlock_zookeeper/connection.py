"""What a session needs of the kazoo client under it: an `OwnClient`, rarely a `GivenClient`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Connection"]


class Connection(Protocol):
    """What a session needs of its client."""

    #: A `KazooClient`; kazoo has no types.
    client: Any
    #: Whether others use the client and its session too.
    shared: bool

    def start(self, connected: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Connect, without blocking.

        ``connected`` is called once, from any thread, when there is a session and `ttl` is known.
        ``failed`` is called, perhaps repeatedly, with the reason why a round of attempts failed.
        """

    def ttl(self) -> float:
        """The time-to-live in seconds that the server granted."""

    def born(self) -> float:
        """A moment before the leader last heard of a session that has just been opened."""

    def crash(self) -> BaseException | None:
        """What the client's I/O thread died of, which kazoo only logs."""

    def stop(self) -> None:
        """End the session and the connection, if they are our own. Blocks for a bounded time."""

    def servers(self) -> list[tuple[str, int]]:
        """The host and port of each server."""

    def dial(self, host: str, port: int, timeout: float) -> socket.socket:
        """A separate connection to a server, made as the session's is; raises OSError."""
