"""Raw pipelined messages, as many at a time as locks are taken; run as a worker."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from coordlock_etcd import messages_pb2 as pb
from kazoo.client import KazooClient

from bench.contestants.etcd_floor import EtcdFloor

__all__ = ["EtcdCeiling", "ZooKeeperCeiling"]


Told = Callable[[Any], object]


class _Ceiling(ABC):
    """A contender's messages and its deletion, in ``width`` lanes at a time."""

    _lanes = 0

    def independent(self, width: int, seconds: float) -> float:
        """Pairs per second, each message sent from the callback of the last answer."""
        made, left, done = [0] * width, [width], threading.Event()
        lock = threading.Lock()

        def go_on(lane: int, _: object = None) -> None:
            if time.perf_counter() < started + seconds:
                made[lane] += 1
                self.create(lane, lambda key: self.delete(key, partial(go_on, lane)))
                return
            with lock:
                left[0] -= 1
                if not left[0]:
                    done.set()

        self._prepare(width)
        started = time.perf_counter()
        for lane in range(width):
            go_on(lane)
        done.wait()
        return sum(made) / (time.perf_counter() - started)

    def awaited(self, width: int, seconds: float) -> float:
        """Pairs per second, each message sent from a task that has awaited the last answer."""

        async def answer(send: Callable[[Told], None]) -> Any:
            loop = asyncio.get_running_loop()
            answered = loop.create_future()
            post: Callable[..., object] = loop.call_soon_threadsafe
            send(lambda told: post(answered.set_result, told))
            return await answered

        async def turns(lane: int, until: float) -> int:
            made = 0
            while time.perf_counter() < until:
                key = await answer(partial(self.create, lane))
                await answer(partial(self.delete, key))
                made += 1
            return made

        async def main() -> float:
            started = time.perf_counter()
            made = await asyncio.gather(*(turns(one, started + seconds) for one in range(width)))
            return sum(made) / (time.perf_counter() - started)

        self._prepare(width)
        return asyncio.run(main())

    def cpu(self) -> float:
        """The seconds of CPU that this process has taken."""
        return time.process_time()

    def _prepare(self, width: int) -> None:
        for lane in range(self._lanes, width):
            self.prepare(lane)
        self._lanes = max(self._lanes, width)

    def prepare(self, lane: int) -> None:
        """Make what the lane needs."""

    @abstractmethod
    def create(self, lane: int, then: Told) -> None:
        """Create a contender, see who is before it, and then call ``then`` with its key."""

    @abstractmethod
    def delete(self, key: Any, then: Told) -> None:
        """Delete it, and then call ``then``."""


class ZooKeeperCeiling(_Ceiling):
    def __init__(self, address: str) -> None:
        self._client = KazooClient(hosts=address)
        self._client.start()

    def prepare(self, lane: int) -> None:
        self._client.ensure_path(f"/ceiling/{lane}")

    def create(self, lane: int, then: Told) -> None:
        parent = f"/ceiling/{lane}"
        created = self._client.create_async(
            f"{parent}/7f1c0a52b8e14c06a8d9__lock__", b"", ephemeral=True, sequence=True
        )
        self._client.get_children_async(parent).rawlink(lambda _: then(created.get()))

    def delete(self, key: str, then: Told) -> None:
        self._client.delete_async(key).rawlink(then)

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class EtcdCeiling(_Ceiling):
    def __init__(self, address: str) -> None:
        self._floor = EtcdFloor(address, "/ceiling")

    def create(self, lane: int, then: Told) -> None:
        floor = self._floor
        key = floor.key(str(lane))
        created = floor._txn.future(floor.enqueue(str(lane), key))
        created.add_done_callback(lambda _: then(key))

    def delete(self, key: bytes, then: Told) -> None:
        self._floor._delete.future(pb.DeleteRangeRequest(key=key)).add_done_callback(then)

    def close(self) -> None:
        self._floor.close()
