"""The recipe of kazoo."""

from __future__ import annotations

from typing import Any

from kazoo.client import KazooClient

from bench.contestants.contestant import Contestant

__all__ = ["KazooLock"]


class KazooLock(Contestant):
    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._client = KazooClient(hosts=address)
        self._client.start()
        self._locks: dict[str, Any] = {}

    def acquire(self, name: str) -> Any:
        # One object for all turns: a new one would look for the parents each time.
        lock = self._locks.setdefault(name, self._client.Lock(f"{self.root}/{name}"))
        lock.acquire()
        return lock

    def release(self, held: Any) -> None:
        held.release()

    def close(self) -> None:
        self._client.stop()
        self._client.close()
