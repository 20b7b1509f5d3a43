"""What locks cost: threads, and messages on an etcd that others write to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from coordlock_etcd import EtcdBackend, requests, rpc
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.keys import Layout
from coordlock_etcd.watcher import _REPLAYS

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
    """Whether one waiter's watches are set, and its own is known to have caught up."""
    backend = client._engine.backend
    assert isinstance(backend, EtcdBackend)
    watcher = backend._watcher
    with watcher._lock:
        watches = list(watcher._watches.values())
        return len(watches) == 2 and all(one in watcher._progress for one in watches)


def test_handoffs_cost_no_read_on_an_etcd_that_others_write_to(
    etcd: Etcd, root: str, busy: None
) -> None:
    with (
        FaultProxy(etcd.host, etcd.port, GrpcFrames) as proxy,
        coordlock.connect(f"etcd://127.0.0.1:{proxy.port}{root}?ttl=60s") as client,
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
        assert sent.requests["Txn"] == 20, sent.requests
        # Each watches two, the one on itself twice, and takes all of them back.
        assert sent.requests["Watch"] <= 20 * 6, sent.requests


def test_a_waiter_that_is_evicted_before_its_turn_is_not_granted_on_a_busy_etcd(
    etcd: Etcd, root: str, busy: None, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fault: etcd does not get round to what has to catch up.
    real = requests.watch

    def never(
        id: int, key: bytes, start: int, *, puts: bool = False, end: bytes = b""
    ) -> pb.WatchRequest:
        return real(id, b"nothing" if puts else key, start, puts=puts, end=end)

    monkeypatch.setattr(requests, "watch", never)
    party = join(etcd.url_for(root))
    with (
        coordlock.connect(etcd.url_for(root, ttl="60s")) as client,
        coordlock.connect(etcd.url_for(root, ttl="60s")) as other,
        ThreadPoolExecutor() as pool,
    ):
        for _ in range(10):
            holding = other.lock("orders").acquire()
            waiting = pool.submit(client.lock("orders").acquire)
            eventually(lambda: len(other.admin.contenders("orders")) == 2)
            waiter = party.backend.snapshot("orders").result(30).contenders[-1]
            assert party.backend.evict(waiter).result(30)
            holding.release()
            assert isinstance(waiting.exception(30), coordlock.errors.Evicted)


def test_a_crowd_on_a_busy_etcd_is_seen_to_catch_up_a_few_at_a_time(
    etcd: Etcd, root: str, busy: None, join: Join
) -> None:
    party = join(etcd.url_for(root))
    for number in range(200):
        _, contender, snapshot = party.enqueue(f"q{number}")
        party.backend.watch(contender, snapshot.revision, lambda _: None)
    assert isinstance(party.backend, EtcdBackend)
    watcher, under_way = party.backend._watcher, set[int]()

    def all_but_the_last_have_caught_up() -> bool:
        with watcher._lock:
            under_way.add(len(watcher._replayed))
            return sum(one in watcher._progress for one in watcher._watches.values()) >= 199

    eventually(all_but_the_last_have_caught_up)
    assert max(under_way) <= _REPLAYS
