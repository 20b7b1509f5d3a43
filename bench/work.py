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
from bench.consumers import AT_ONCE, DATA, fill, kazoo
from bench.field import in_turns
from bench.figures import spread
from bench.services import CLUSTERS, Service, messages, service
from bench.table import Table

__all__ = ["measure"]

#: How many items wait.
_LENGTHS = (100, 1000, 10_000)
_BOUND = 60.0
_OURS = "coordlock"
_THEIRS = "kazoo LockingQueue"


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
        makers: dict[str, Callable[[str], Any]] = {_OURS: client.work_queue}
        if server.name == "zookeeper":
            theirs = stack.enter_context(kazoo(server.address))
            makers[_THEIRS] = lambda name: theirs.LockingQueue(f"/theirs/{name}")
        for length in _LENGTHS:
            queues = {kind: make(f"q{length}") for kind, make in makers.items()}
            filled = {}
            for kind, queue in queues.items():
                began = time.perf_counter()
                fill(queue, length, pool)
                filled[kind] = length / (time.perf_counter() - began)
            puts: dict[str, list[float]] = {kind: [] for kind in queues}
            takes: dict[str, list[float]] = {kind: [] for kind in queues}
            for number, kind in in_turns(list(queues), rounds):
                queue = queues[kind]
                put, taken = _timed(partial(queue.put, DATA)), _timed(partial(_take, queue))
                if number:
                    puts[kind].append(put)
                    takes[kind].append(taken)
            for kind in queues:
                counted = _requests(server, length) if kind == _OURS and server.pid else None
                table.add(
                    kind, length, spread(puts[kind]), spread(takes[kind]), filled[kind], counted
                )
    return table


def _take(queue: Any) -> None:
    """Take an item, and do it."""
    if isinstance(queue, coordlock.WorkQueue):
        queue.take(_BOUND).ack()
    else:
        queue.get(_BOUND)
        assert queue.consume()


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def _requests(server: Service, length: int) -> float:
    """How many requests an item takes in a queue of that length, which is there."""
    items = 20
    with server.proxy() as proxy, coordlock.connect(server.behind(proxy).url("/ours")) as client:
        queue = client.work_queue(f"q{length}")
        queue.put(DATA)
        _take(queue)
        with proxy.counting() as sent:
            for _ in range(items):
                queue.put(DATA)
                _take(queue)
    return messages(sent.requests) / items
