"""The resource as its clients see it: one connection for each worker."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from testbed.resource.protocol import Answer, Request

__all__ = ["AsyncRemote", "Remote"]


class Remote:
    """The resource, for threads. Connects when it is first used."""

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._socket: socket.socket | None = None

    def offer(self, request: Request) -> Answer:
        """The resource's answer. Raises OSError when the resource is not there."""
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(self._path)
            self._lines = self._socket.makefile("rb")
        self._socket.sendall(request.encode())
        return Answer.decode(self._lines.readline())

    def close(self) -> None:
        """Disconnect."""
        if self._socket is not None:
            self._lines.close()
            self._socket.close()


class AsyncRemote:
    """The same for asyncio, by a thread for each request."""

    def __init__(self, path: str) -> None:
        self._remote: Final = Remote(path)

    async def offer(self, request: Request) -> Answer:
        """See `Remote.offer`."""
        return await asyncio.to_thread(self._remote.offer, request)

    async def close(self) -> None:
        """Disconnect."""
        self._remote.close()
