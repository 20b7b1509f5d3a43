"""tooz, over kazoo and over etcd's HTTP gateway."""

from __future__ import annotations

from typing import Any

from tooz.coordination import get_coordinator

from bench.contestants.contestant import Contestant

__all__ = ["ToozEtcd", "ToozZooKeeper"]


class _Tooz(Contestant):
    scheme: str

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._coordinator = get_coordinator(f"{self.scheme}://{address}", b"bench")
        self._coordinator.start()
        self._locks: dict[str, Any] = {}

    def acquire(self, name: str) -> Any:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = self._coordinator.get_lock(f"{self.root}-{name}".encode())
        if not lock.acquire(blocking=True):
            raise RuntimeError("tooz did not acquire")
        return lock

    def release(self, held: Any) -> None:
        held.release()

    def close(self) -> None:
        self._coordinator.stop()


class ToozZooKeeper(_Tooz):
    scheme = "zookeeper"

    def acquire(self, name: str) -> Any:
        return super().acquire(name)


class ToozEtcd(_Tooz):
    scheme = "etcd3+http"
