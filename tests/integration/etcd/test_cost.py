"""What locks cost: threads, and messages on an etcd that others write to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from coordlock_etcd import EtcdBackend, requests, rpc
from coordlock_etcd.keys import Layout

import coordlock
from coordlock.backend import Put
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from tests.integration.etcd.conftest import Join


@pytest.fixture
def busy(join: Join, etcd: Etcd, root: str) -> Iterator[None]:
    """Somebody writes to etcd all the time."""
    party = join(etcd.url_for(root))
    _, me, _ = party.enqueue("writer")
    write = requests.guarded_writes([me], [Put("/elsewhere", b"")], Layout.below("/"))
    assert isinstance(party.backend, EtcdBackend)
    connection, stop = party.backend._connection, threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            assert connection.call(rpc.TXN, write, lambda reply: reply.succeeded).result(30)

    thread = threading.Thread(target=go_on)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_to_acquire_and_to_release_starts_no_thread(
    etcd: Etcd, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def count(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    with coordlock.connect(etcd.url_for(root, ttl="60s")) as client:
        client.lock("orders").acquire().release()
        monkeypatch.setattr(threading.Thread, "start", count)
        for _ in range(20):
            client.lock("orders").acquire().release()
    # gRPC would start one for each call. Closing takes one.
    assert started == ["coordlock-etcd-close"]


def waits_in_order(client: coordlock.Client) -> bool:
    """Whether one waiter's watches are set, and both are certain."""
    backend = client._engine.backend
    assert isinstance(backend, EtcdBackend)
    with backend._watcher._lock:
        watches = list(backend._watcher._watches.watched.values())
        return len(watches) == 2 and all(one.is_covered for one in watches)


def test_handoffs_cost_one_reading_in_all_on_an_etcd_that_others_write_to(
    etcd: Etcd, root: str, busy: None
) -> None:
    patient = "ttl=60s&request_timeout=30s"
    with (
        FaultProxy(etcd.host, etcd.port, GrpcFrames) as proxy,
        coordlock.connect(f"etcd://127.0.0.1:{proxy.port}{root}?{patient}") as client,
        coordlock.connect(etcd.url_for(root, ttl="60s")) as other,
        ThreadPoolExecutor() as pool,
    ):
        client.lock("warm").acquire().release()
        with proxy.counting() as sent:
            for _ in range(20):
                holding = other.lock("orders").acquire()
                waiting = pool.submit(client.lock("orders").acquire)
                eventually(lambda: waits_in_order(client))
                holding.release()
                waiting.result(30).release()
        assert sent.requests["Range"] == 0, sent.requests
        # An acquire and a release each time, and one reading of the watched keys.
        assert sent.requests["Txn"] <= 2 * 20 + 1, sent.requests
        assert sent.requests["Watch"] <= 1, sent.requests
