"""Work queues: what an item costs in a short queue and in a long one, beside kazoo's."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import coordlock
from bench import consumers
from bench.consumers import AT_ONCE, kazoo
from bench.figures import spread
from bench.progress import doing
from bench.services import HEARTBEATS, SERVICES, Service, service
from bench.table import Plot, Table

__all__ = ["measure"]

#: How many items wait. COORDLOCK_BENCH_ITEMS=100000 adds a queue of that length.
_LENGTHS = [100, 1000, 10_000]
_DATA = b"x" * 100
_BOUND = 60.0
_OURS = "coordlock"
_THEIRS = "kazoo LockingQueue"

Item = Callable[[], object]


def measure(rounds: int) -> Iterator[Table]:
    for name in SERVICES:
        with service(name) as server:
            url = f"{name}://{server.address}"
            yield _by_length(name, url, rounds, server)
            yield consumers.measure(name, url, rounds)
    with tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory:
        url = f"local://{directory}"
        yield _by_length("local", url, rounds)
        yield consumers.measure("local", url, rounds)


def _lengths() -> list[int]:
    more = os.environ.get("COORDLOCK_BENCH_ITEMS")
    return [*_LENGTHS, *([int(more)] if more else [])]


def _by_length(where: str, url: str, rounds: int, server: Service | None = None) -> Table:
    table = Table(
        f"An item of a work queue, by how many wait: {where}",
        ("queue", "items", "put, ms", "take and done, ms", "put at once, items/s", "messages"),
        notes=[
            f"{rounds} rounds of an item put, and one taken and done, by one consumer, in turns",
            f"at once: by {AT_ONCE} threads of one client, until the queue is so long",
            f"kazoo's up to {_LENGTHS[-1]:,} items: it lists all of them",
            "messages: requests for one item put, taken and done, heartbeats aside",
        ],
        plot=Plot("take and done, ms", "queue", over="items", log=True),
    )
    with ExitStack() as stack:
        client = stack.enter_context(coordlock.connect(f"{url}/ours?ttl=60s"))
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        makers: dict[str, Callable[[str], _Queue]] = {_OURS: partial(_Ours, client, pool)}
        if where == "zookeeper" and server is not None:
            theirs = stack.enter_context(kazoo(server.address))
            makers[_THEIRS] = partial(_Kazoo, theirs)
        for length in _lengths():
            for kind, make in makers.items():
                if kind != _OURS and length > _LENGTHS[-1]:
                    continue
                doing(f"{where}: {kind}, {length} items")
                queue = make(f"q{length}")
                began = time.perf_counter()
                queue.fill(length)
                filled = length / (time.perf_counter() - began)
                puts, takes = _in_turns(queue, rounds)
                messages = None
                if kind == _OURS and server is not None:
                    messages = _messages(server, length)
                table.add(kind, length, spread(puts), spread(takes), filled, messages)
    return table


class _Queue:
    """One queue of a contestant's."""

    def fill(self, items: int) -> None:
        """Put so many."""
        raise NotImplementedError

    def put(self, data: bytes = _DATA) -> None:
        """Put one."""
        raise NotImplementedError

    def take(self) -> bytes:
        """Take one, and do it; what was put."""
        raise NotImplementedError


class _Ours(_Queue):
    def __init__(self, client: coordlock.Client, pool: ThreadPoolExecutor, name: str) -> None:
        self._queue = client.work_queue(name)
        self._pool = pool

    def fill(self, items: int) -> None:
        for _ in self._pool.map(self._queue.put, [_DATA] * items):
            pass

    def put(self, data: bytes = _DATA) -> None:
        self._queue.put(data)

    def take(self) -> bytes:
        item = self._queue.take(_BOUND)
        item.ack()
        return item.data


class _Kazoo(_Queue):
    def __init__(self, client: Any, name: str) -> None:
        self._queue = client.LockingQueue(f"/theirs/{name}")

    def fill(self, items: int) -> None:
        for start in range(0, items, AT_ONCE):
            self._queue.put_all([_DATA] * min(AT_ONCE, items - start))

    def put(self, data: bytes = _DATA) -> None:
        self._queue.put(data)

    def take(self) -> bytes:
        data: bytes = self._queue.get(_BOUND)
        assert self._queue.consume()
        return data


def _in_turns(queue: _Queue, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each put and each take."""
    puts, takes = [], []
    for _ in range(rounds):
        puts.append(_timed(queue.put))
        takes.append(_timed(queue.take))
    return puts, takes


def _timed(act: Item) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def _messages(server: Service, length: int) -> float:
    """How many requests an item takes in a queue of that length, which is there."""
    items = 20
    with server.proxy() as proxy:
        url = f"{server.name}://{proxy.host}:{proxy.port}/ours?ttl=60s"
        with coordlock.connect(url) as client:
            queue = client.work_queue(f"q{length}")
            queue.put(_DATA)
            queue.take(_BOUND).ack()
            with proxy.counting() as sent:
                for _ in range(items):
                    queue.put(_DATA)
                    queue.take(_BOUND).ack()
        requests = {kind: n for kind, n in sent.requests.items() if kind not in HEARTBEATS}
    return sum(requests.values()) / items
