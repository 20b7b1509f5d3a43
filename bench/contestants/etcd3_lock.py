"""The lock of etcd3, the client that most use."""

from __future__ import annotations

from typing import Any

import etcd3

from bench.contestants.contestant import Contestant

__all__ = ["Etcd3Lock"]


class Etcd3Lock(Contestant):
    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._client = etcd3.client(host=self.host, port=int(self.port))

    def acquire(self, name: str) -> Any:
        lock = self._client.lock(f"{self.root}/{name}", ttl=30)
        if not lock.acquire(timeout=None):
            raise RuntimeError("etcd3 did not acquire")
        return lock

    def release(self, held: Any) -> None:
        held.release()

    def close(self) -> None:
        self._client.close()
