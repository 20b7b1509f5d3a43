"""coordlock itself, sync and asyncio, on any backend: its address is a URL."""

from __future__ import annotations

from contextlib import AsyncExitStack

import coordlock
from bench.contestants.contestant import AsyncContestant, Contestant

__all__ = ["Async", "Sync"]


class Sync(Contestant):
    """With threads."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._client = coordlock.connect(address)

    def acquire(self, name: str) -> coordlock.Grant:
        return self._client.lock(name).acquire()

    def release(self, held: coordlock.Grant) -> None:
        held.release()

    def close(self) -> None:
        self._client.close()


class Async(AsyncContestant):
    """With asyncio."""

    async def open(self) -> None:
        self._open = AsyncExitStack()
        connecting = coordlock.connect_async(self.address)
        self._client = await self._open.enter_async_context(connecting)

    async def take(self, name: str) -> coordlock.AsyncGrant:
        return await self._client.lock(name).acquire()

    async def give(self, held: coordlock.AsyncGrant) -> None:
        await held.release()

    def close(self) -> None:
        self.runner.run(self._open.aclose())
