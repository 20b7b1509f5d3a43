"""The lock of aetcd, for asyncio."""

from __future__ import annotations

from typing import Any

import aetcd

from bench.contestants.contestant import AsyncContestant

__all__ = ["AetcdLock"]


class AetcdLock(AsyncContestant):
    async def open(self) -> None:
        self._client = aetcd.Client(host=self.host, port=int(self.port))
        await self._client.connect()

    async def take(self, name: str) -> Any:
        lock = self._client.lock(f"{self.root}/{name}".encode(), ttl=30)
        if not await lock.acquire(timeout=None):
            raise RuntimeError("aetcd did not acquire")
        return lock

    async def give(self, held: Any) -> None:
        await held.release()

    def close(self) -> None:
        self.runner.run(self._client.close())
