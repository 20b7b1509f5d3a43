"""Raw pipelined messages, as many at a time as locks are taken; run as a worker."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from coordlock_etcd import messages_pb2 as pb
from kazoo.client import KazooClient

from bench.contestants.etcd_floor import EtcdFloor

__all__ = ["EtcdCeiling", "ZooKeeperCeiling"]


class _Ceiling(ABC):
    """Each of ``width`` lanes sends its next messages from the callback of the last answer."""

    def independent(self, width: int, seconds: float) -> float:
        """Pairs of a contender's messages and its deletion, per second."""
        made, left, done = [0] * width, [width], threading.Event()
        lock = threading.Lock()
        started = time.perf_counter()

        def go_on(lane: int) -> None:
            if time.perf_counter() < started + seconds:
                made[lane] += 1
                self.start(lane, lambda: go_on(lane))
                return
            with lock:
                left[0] -= 1
                if not left[0]:
                    done.set()

        for lane in range(width):
            self.prepare(lane)
        started = time.perf_counter()
        for lane in range(width):
            go_on(lane)
        done.wait()
        return sum(made) / (time.perf_counter() - started)

    def cpu(self) -> float:
        """The seconds of CPU that this process has taken."""
        return time.process_time()

    def prepare(self, lane: int) -> None:
        """Make what the lane needs."""

    @abstractmethod
    def start(self, lane: int, then: Callable[[], None]) -> None:
        """Create and delete, and then call ``then``."""


class ZooKeeperCeiling(_Ceiling):
    def __init__(self, address: str) -> None:
        self._client = KazooClient(hosts=address)
        self._client.start()

    def prepare(self, lane: int) -> None:
        self._client.ensure_path(f"/ceiling/{lane}")

    def start(self, lane: int, then: Callable[[], None]) -> None:
        parent = f"/ceiling/{lane}"
        created = self._client.create_async(
            f"{parent}/7f1c0a52b8e14c06a8d9__lock__", b"", ephemeral=True, sequence=True
        )

        def listed(_: Any) -> None:
            self._client.delete_async(created.get()).rawlink(lambda _: then())

        self._client.get_children_async(parent).rawlink(listed)

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class EtcdCeiling(_Ceiling):
    def __init__(self, address: str) -> None:
        self._floor = EtcdFloor(address, "/ceiling")

    def start(self, lane: int, then: Callable[[], None]) -> None:
        floor = self._floor
        key = floor.key(str(lane))

        def put(_: object) -> None:
            deleted = floor._delete.future(pb.DeleteRangeRequest(key=key))
            deleted.add_done_callback(lambda _: then())

        floor._txn.future(floor.enqueue(str(lane), key)).add_done_callback(put)

    def close(self) -> None:
        self._floor.close()
