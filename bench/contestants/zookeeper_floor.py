"""What no lock on ZooKeeper through kazoo can go below: its messages, and nothing around them."""

from __future__ import annotations

import threading
import time

from kazoo.client import KazooClient

from bench.contestants.contestant import Contestant

__all__ = ["ZooKeeperFloor"]


class ZooKeeperFloor(Contestant):
    """Create a contender with the list pipelined behind it; then delete it."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._client = KazooClient(hosts=address)
        self._client.start()
        self._known: set[str] = set()

    def acquire(self, name: str) -> str:
        parent = f"{self.root}/{name}"
        if parent not in self._known:
            self._client.ensure_path(parent)
            self._known.add(parent)
        created = self._client.create_async(
            f"{parent}/7f1c0a52b8e14c06a8d9__lock__", b"", ephemeral=True, sequence=True
        )
        listed = self._client.get_children_async(parent)
        path: str = created.get()
        listed.get()
        return path

    def release(self, held: str) -> None:
        self._client.delete_async(held).get()

    def wait(self, name: str) -> float:
        """When the event came that the one contender has left: a commit and an event."""
        parent, gone = f"{self.root}/{name}", threading.Event()
        (child,) = self._client.get_children(parent)
        self._client.get(f"{parent}/{child}", watch=lambda _: gone.set())
        gone.wait()
        self._held[name] = None
        return time.monotonic()

    def close(self) -> None:
        self._client.stop()
        self._client.close()
