"""Work queues: what an item costs in a short queue and in a long one, beside kazoo's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import coordlock
from bench import consumers
from bench.consumers import AT_ONCE, kazoo
from bench.field import in_turns
from bench.figures import spread
from bench.services import CLUSTERS, Service, messages, service
from bench.table import Table

__all__ = ["measure"]

#: How many items wait.
_LENGTHS = (100, 1000, 10_000)
_DATA = b"x" * 100
_BOUND = 60.0
_OURS = "coordlock"
_THEIRS = "kazoo LockingQueue"

Item = Callable[[], object]


def measure(rounds: int) -> Iterator[Table]:
    for name in (*CLUSTERS, "local"):
        with service(name) as server:
            yield _by_length(server, rounds)
            yield consumers.measure(server, rounds)


def _by_length(server: Service, rounds: int) -> Table:
    table = Table(
        f"An item of a work queue, by how many wait: {server.name}",
        ("queue", "items", "put, ms", "take and done, ms", "put at once, items/s", "messages"),
        notes=[
            f"{rounds} rounds of an item put, and one taken and done, by one consumer, in turns",
            f"at once: by {AT_ONCE} threads of one client, until the queue is so long",
            "messages: requests for one item put, taken and done, heartbeats aside",
        ],
    )
    with ExitStack() as stack:
        client = stack.enter_context(coordlock.connect(server.url("/ours")))
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        makers: dict[str, Callable[[str], _Queue]] = {_OURS: partial(_Ours, client, pool)}
        if server.name == "zookeeper":
            theirs = stack.enter_context(kazoo(server.address))
            makers[_THEIRS] = partial(_Kazoo, theirs)
        for length in _LENGTHS:
            queues = {kind: make(f"q{length}") for kind, make in makers.items()}
            filled = {}
            for kind, queue in queues.items():
                began = time.perf_counter()
                queue.fill(length)
                filled[kind] = length / (time.perf_counter() - began)
            puts: dict[str, list[float]] = {kind: [] for kind in queues}
            takes: dict[str, list[float]] = {kind: [] for kind in queues}
            for number, kind in in_turns(list(queues), rounds):
                put, taken = _timed(queues[kind].put), _timed(queues[kind].take)
                if number:
                    puts[kind].append(put)
                    takes[kind].append(taken)
            for kind in queues:
                counted = _requests(server, length) if kind == _OURS and server.pid else None
                table.add(
                    kind, length, spread(puts[kind]), spread(takes[kind]), filled[kind], counted
                )
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


def _timed(act: Item) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def _requests(server: Service, length: int) -> float:
    """How many requests an item takes in a queue of that length, which is there."""
    items = 20
    with server.proxy() as proxy, coordlock.connect(server.behind(proxy).url("/ours")) as client:
        queue = client.work_queue(f"q{length}")
        queue.put(_DATA)
        queue.take(_BOUND).ack()
        with proxy.counting() as sent:
            for _ in range(items):
                queue.put(_DATA)
                queue.take(_BOUND).ack()
    return messages(sent.requests) / items
