"""A short queue in which a client waits is watched as a whole."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from coordlock_etcd import EtcdBackend
from coordlock_etcd.watches import EtcdWatch

import coordlock
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd


def queue_watch(client: coordlock.Client) -> EtcdWatch | None:
    """The client's watch on the whole of its only queue."""
    backend = client._engine.backend
    assert isinstance(backend, EtcdBackend)
    return next(iter(backend._watcher._queues.values()), None)


def is_watched(client: coordlock.Client) -> bool:
    queue = queue_watch(client)
    return queue is not None and queue.filed < math.inf


def take_turns(clients: list[coordlock.Client], until: Callable[[], bool]) -> int:
    """Let all clients acquire the lock in turns; the grants before ``until`` was true."""
    over, grants = threading.Event(), [0] * len(clients)

    def work(number: int) -> None:
        lock = clients[number].lock("orders")
        while not over.is_set():
            with lock:
                grants[number] += 1

    with ThreadPoolExecutor() as pool:
        working = [pool.submit(work, number) for number in range(len(clients))]
        try:
            eventually(until)
        finally:
            over.set()
        for one in working:
            one.result(30)
    return sum(grants)


@pytest.fixture
def clients(etcd: Etcd, proxy: FaultProxy, root: str) -> list[coordlock.Client]:
    """Three clients, the first of them behind the proxy, that have taken turns."""
    direct = etcd.url_for(root, ttl="60s")
    urls = [f"etcd://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=30s", direct, direct]
    clients = [coordlock.connect(url) for url in urls]
    take_turns(clients, lambda: all(map(is_watched, clients)))
    return clients


@pytest.fixture(autouse=True)
def closed(clients: list[coordlock.Client]) -> object:
    yield
    for client in clients:
        client.close()


def test_turns_cost_neither_readings_nor_watches(
    clients: list[coordlock.Client], proxy: FaultProxy
) -> None:
    def cost_nothing() -> bool:
        before = proxy.counts()

        def sent(kind: str) -> int:
            return (proxy.counts() - before).requests[kind]

        take_turns(clients, lambda: sent("Txn") >= 80)
        return sent("Range") == sent("Watch") == 0

    eventually(cost_nothing)  # a machine that stands still costs a reading


def test_who_stands_between_gives_up_and_the_next_goes_on_waiting(
    clients: list[coordlock.Client],
) -> None:
    waiting, holder, between = clients
    held = holder.lock("orders").acquire()
    with ThreadPoolExecutor() as pool:
        giving_up = pool.submit(between.lock("orders").acquire, 1.0)
        eventually(lambda: len(holder.admin.contenders("orders")) == 2)
        last = pool.submit(waiting.lock("orders").acquire)
        with pytest.raises(coordlock.AcquireTimeout):
            giving_up.result(30)
        eventually(lambda: len(holder.admin.contenders("orders")) == 2)
        assert not last.done()
        held.release()
        last.result(30).release()


def test_it_lasts_as_long_as_a_contender_and_a_heartbeat_ends_it_then(
    clients: list[coordlock.Client],
) -> None:
    first, _, _ = clients
    held = first.lock("orders").acquire()
    eventually(lambda: (queue := queue_watch(first)) is not None and bool(queue._watches))
    for _ in range(2):
        first._engine.backend.heartbeat().result(30)
    assert is_watched(first)
    held.release()
    for _ in range(2):
        first._engine.backend.heartbeat().result(30)
    assert queue_watch(first) is None
