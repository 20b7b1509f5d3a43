"""Locks on Redis of other libraries, as they come."""

from __future__ import annotations

from typing import Any

from bench.contestants.contestant import Contestant

__all__ = ["PythonRedisLock", "RedisPy"]


class RedisPy(Contestant):
    """redis-py's own: a key with an expiry; whoever waits asks again every 100 ms."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        import redis

        self._client = redis.Redis(host=self.host, port=int(self.port))

    def acquire(self, name: str) -> Any:
        lock = self._client.lock(f"{self.root}:{name}", timeout=30)
        lock.acquire()
        return lock

    def release(self, held: Any) -> None:
        held.release()

    def close(self) -> None:
        self._client.close()


class PythonRedisLock(RedisPy):
    """python-redis-lock: a key with an expiry, and a list at which waiters block."""

    def acquire(self, name: str) -> Any:
        import redis_lock

        lock = redis_lock.Lock(self._client, f"{self.root}:{name}", expire=30)
        lock.acquire()
        return lock
