"""Consumers of one work queue: processes, and threads of one client, beside the service's limits.

Beside them are kazoo's LockingQueue on ZooKeeper, and on etcd bare transactions, two an item, which
no queue can go below.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from kazoo.client import KazooClient

import coordlock
from bench.figures import spread
from bench.services import Service
from bench.table import Table
from bench.workers import Worker, WorkerFailed, crew
from coordlock.backend.data import Delete, Expect, Put

__all__ = ["AT_ONCE", "DATA", "Process", "fill", "kazoo", "measure"]

#: Processes, and consumers in each.
_ROWS: Final = ((1, 1), (4, 1), (20, 1), (1, 20))
_SAMPLES: Final = 3
#: How many items there are at least for each consumer, so that neither its beginning nor the last
#: items count for much; of kazoo's, which are slow, fewer.
_SHARE: Final = 100
_SHARE_OF_KAZOO: Final = 10
DATA: Final = b"x" * 100
#: How many items are put at the same time.
AT_ONCE: Final = 24
_OURS: Final = "coordlock"
_THEIRS: Final = {"zookeeper": "kazoo LockingQueue", "etcd": "bare transactions"}
#: For how many seconds kazoo looks whether its queue is empty.
_END: Final = 0.5

#: Does one item; False where none is left.
Step = Callable[[], bool]


def measure(server: Service, rounds: int) -> Table:
    """Items a second by how many consumers there are."""
    where, items, samples = server.name, max(100, 10 * rounds), min(_SAMPLES, rounds)
    table = Table(
        f"Consumers of one work queue: {where}",
        ("queue", "processes", "consumers in each", "items/s", "CPU an item, ms"),
        notes=[
            f"{samples} times {items} items, {_SHARE} for each consumer where that is more "
            f"(kazoo: {_SHARE_OF_KAZOO})",
            "each item is done at once; the consumers of a process share a client",
            "CPU: that of the consumers' processes, not of the service",
        ],
    )
    for kind in filter(None, (_OURS, _THEIRS.get(where))):
        share = _SHARE_OF_KAZOO if kind == _THEIRS["zookeeper"] else _SHARE
        for processes, threads in _ROWS:
            enough = max(items, share * processes * threads)
            try:
                rates, cpu = _measured(kind, server, processes, threads, enough, samples)
            except WorkerFailed as reason:
                left_out = f"{kind}, {processes} processes with {threads} consumers: left out"
                table.notes.append(f"{left_out}, {reason}")
            else:
                table.add(kind, processes, threads, spread(rates), spread(cpu))
    return table


def _measured(
    kind: str, server: Service, processes: int, threads: int, items: int, samples: int
) -> tuple[list[float], list[float]]:
    """Of each sample, the items a second, and the milliseconds of CPU for an item."""
    share = items // (processes * threads)
    rates, cpu = [], []
    subject, url = f"{__name__}:Process", server.url(f"/{kind[:4]}-{processes}-{threads}")
    arguments = (kind, server.address, url, str(threads))
    with crew([Worker(subject, *arguments, quiet=True) for _ in range(processes)]) as crowd:
        for sample in range(samples + 1):
            crowd[0].do("fill", items=items)
            began = time.time()
            for one in crowd:
                one.tell("work", share=share)
            found = [one.answer() for one in crowd]
            done = sum(number for number, _, _ in found)
            if sample:  # the first one warms up
                rates.append(done / (max(last for _, last, _ in found) - began))
                cpu.append(1e3 * sum(used for _, _, used in found) / done)
    return rates, cpu


class Process:
    """Consumers in one process, under the orders of a worker."""

    def __init__(self, kind: str, address: str, url: str, threads: str) -> None:
        make = {_OURS: _Ours, _THEIRS["zookeeper"]: _Kazoo, _THEIRS["etcd"]: _Bare}[kind]
        self._pool: Final = ThreadPoolExecutor(max(int(threads), AT_ONCE))
        self._threads: Final = int(threads)
        self._consumer: Final = make(address, url)

    def fill(self, items: int) -> None:
        """Put so many."""
        if self._consumer.queue is not None:
            fill(self._consumer.queue, items, self._pool)

    def work(self, share: int) -> tuple[int, float, float]:
        """Do items until none is left: how many, when the last was done, and the CPU's seconds."""
        began = time.process_time()
        steps = [self._consumer.steps(share) for _ in range(self._threads)]
        found = list(self._pool.map(_emptied, steps))
        done, last = sum(number for number, _ in found), max(last for _, last in found)
        return done, last, time.process_time() - began

    def close(self) -> None:
        """Close the client."""
        self._pool.shutdown()
        self._consumer.close()


def fill(queue: Any, items: int, pool: ThreadPoolExecutor) -> None:
    """Put ``items`` items into ``queue``, coordlock's or kazoo's, by the threads of ``pool``."""
    if isinstance(queue, coordlock.WorkQueue):
        for _ in pool.map(queue.put, [DATA] * items):
            pass
    else:
        for start in range(0, items, AT_ONCE):
            queue.put_all([DATA] * min(AT_ONCE, items - start))


def _emptied(step: Step) -> tuple[int, float]:
    done, last = 0, 0.0
    while step():
        done, last = done + 1, time.time()
    return done, last


class _Consumer(ExitStack):
    """A client of its own, whose consumers take from one queue."""

    queue: Any = None

    def __init__(self, address: str, url: str) -> None:
        super().__init__()

    def steps(self, share: int) -> Step:
        """What does an item, for one consumer; up to ``share``, where there is nothing to share."""
        raise NotImplementedError


class _Ours(_Consumer):
    def __init__(self, address: str, url: str) -> None:
        super().__init__(address, url)
        self.queue = self.enter_context(coordlock.connect(url)).work_queue("q")

    def steps(self, share: int) -> Step:
        def step() -> bool:
            if (item := self.queue.try_take()) is not None:
                item.ack()
            return item is not None

        return step


class _Kazoo(_Consumer):
    def __init__(self, address: str, url: str) -> None:
        super().__init__(address, url)
        self._client = self.enter_context(kazoo(address))
        self.queue = self._client.LockingQueue("/theirs/q")

    def steps(self, share: int) -> Step:
        queue = self._client.LockingQueue("/theirs/q")  # each consumer keeps what it has taken
        return lambda: queue.get(_END) is not None and bool(queue.consume())


class _Bare(_Consumer):
    def __init__(self, address: str, url: str) -> None:
        super().__init__(address, url)
        client = self.enter_context(coordlock.connect(url))
        client.admin.contenders("q")  # which connects
        self._engine = client._access.engine

    def steps(self, share: int) -> Step:
        write, root = self._engine.backend.write, self._engine.data_root
        keys = iter([f"{root}/{secrets.token_hex(8)}" for _ in range(share)])

        def step() -> bool:
            key = next(keys, None)
            if key is not None:
                write([Expect(key, 0), Put(key, DATA)]).result(60)
                write([Expect(key, 1), Delete(key)]).result(60)
            return key is not None

        return step


@contextmanager
def kazoo(address: str) -> Iterator[Any]:
    """A client of kazoo's, which closes with the block."""
    client = KazooClient(hosts=address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
