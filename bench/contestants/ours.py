"""coordlock itself, sync and asyncio, on any backend."""

from __future__ import annotations

from contextlib import AsyncExitStack

import coordlock
from bench.contestants.contestant import AsyncContestant, Contestant

__all__ = [
    "EtcdAsync",
    "EtcdSync",
    "LocalAsync",
    "LocalSync",
    "RedisAsync",
    "RedisSync",
    "ZooKeeperAsync",
    "ZooKeeperSync",
    "url_of",
]


class _Sync(Contestant):
    scheme: str

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._client = coordlock.connect(url_of(self.scheme, address, root))

    def acquire(self, name: str) -> coordlock.Grant:
        return self._client.lock(name).acquire()

    def release(self, held: coordlock.Grant) -> None:
        held.release()

    def close(self) -> None:
        self._client.close()


class _Async(AsyncContestant):
    scheme: str

    async def open(self) -> None:
        self._open = AsyncExitStack()
        connecting = coordlock.connect_async(url_of(self.scheme, self.address, self.root))
        self._client = await self._open.enter_async_context(connecting)

    async def take(self, name: str) -> coordlock.AsyncGrant:
        return await self._client.lock(name).acquire()

    async def give(self, held: coordlock.AsyncGrant) -> None:
        await held.release()

    def close(self) -> None:
        self.runner.run(self._open.aclose())


def url_of(scheme: str, address: str, root: str, ttl: float = 30.0) -> str:
    """What coordlock connects to, for ``root`` on a service that was just started."""
    fresh = "&restart_delay=0" if scheme == "redis" else ""
    return f"{scheme}://{address}{root}?ttl={ttl:g}s{fresh}"


class ZooKeeperSync(_Sync):
    scheme = "zookeeper"


class ZooKeeperAsync(_Async):
    scheme = "zookeeper"


class EtcdSync(_Sync):
    scheme = "etcd"


class EtcdAsync(_Async):
    scheme = "etcd"


class LocalSync(_Sync):
    scheme = "local"


class LocalAsync(_Async):
    scheme = "local"


class RedisSync(_Sync):
    scheme = "redis"


class RedisAsync(_Async):
    scheme = "redis"
