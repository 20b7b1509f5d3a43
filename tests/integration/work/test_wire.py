"""What a work queue costs on the wire, and that no distance and no backlog changes its promises."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

import coordlock
from coordlock import WorkQueueEmpty
from coordlock.errors import BackendUnavailable
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper

BOUND = 120.0
#: Sent at intervals, whatever the queue does.
KEEPING_ALIVE = {"ping", "sync", "LeaseKeepAlive", "MemberList", "Status"}
#: How many items are taken and acknowledged while requests are counted.
COUNTED = 15


@dataclass
class Wire:
    """A service behind a proxy, which counts requests."""

    proxy: FaultProxy
    url: str
    direct: str

    def cost(self, queue: coordlock.WorkQueue) -> float:
        """Requests for each item that is taken and acknowledged.

        Some looks are due by time, so a slow machine makes more of them: the lowest of three.
        """
        queue.take(BOUND).ack()
        return min(self._cost(queue) for _ in range(3))

    def _cost(self, queue: coordlock.WorkQueue) -> float:
        with self.proxy.counting() as sent:
            for _ in range(COUNTED):
                queue.take(BOUND).ack()
        requests = {kind: n for kind, n in sent.requests.items() if kind not in KEEPING_ALIVE}
        return sum(requests.values()) / COUNTED


@pytest.fixture(params=["etcd", "zookeeper"])
def wire(request: pytest.FixtureRequest, root: str) -> Iterator[Wire]:
    server: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    framer = GrpcFrames if request.param == "etcd" else ZooKeeperFrames
    with FaultProxy(server.host, server.port, framer) as proxy:
        url = f"{request.param}://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=30s"
        yield Wire(proxy, url, server.url_for(root, ttl="60s"))


def fill(queue: coordlock.WorkQueue, items: int, **options: Any) -> None:
    """Put so many at once."""
    with ThreadPoolExecutor(24) as pool:
        for _ in pool.map(lambda _: queue.put(b"item", **options), range(items)):
            pass


def test_at_a_round_trip_of_50_ms_takes_of_250_ms_get_items(wire: Wire) -> None:
    with coordlock.connect(wire.direct) as near, coordlock.connect(wire.url) as far:
        fill(near.work_queue("q"), 6)
        wire.proxy.delay(0.025)
        queue = far.work_queue("q")
        handed = 0
        for _ in range(60):
            try:
                queue.take(0.25).ack()
                handed += 1
            except (WorkQueueEmpty, BackendUnavailable):
                continue
            if handed == 6:
                break
        wire.proxy.heal()
        assert handed == 6
        assert near.work_queue("q").stats().dead == 0


def test_a_far_consumer_gets_its_share_and_hears_of_an_empty_queue_only_at_its_end(
    wire: Wire,
) -> None:
    items = 300
    with ExitStack() as stack:
        near = stack.enter_context(coordlock.connect(wire.direct)).work_queue("q")
        far = stack.enter_context(coordlock.connect(wire.url)).work_queue("q")
        pool = stack.enter_context(ThreadPoolExecutor(2))
        fill(near, items)
        wire.proxy.delay(0.0025)

        def work(queue: coordlock.WorkQueue) -> int:
            done = 0
            while True:
                try:
                    queue.take(1.0).ack()
                except WorkQueueEmpty:
                    assert not near.depth(), "items wait"
                    return done
                done += 1

        shares = list(pool.map(work, (near, far)))
        wire.proxy.heal()
    assert sum(shares) == items
    assert min(shares) >= items / 20, shares


def test_requests_for_an_item_are_few_and_the_same_in_any_queue(wire: Wire) -> None:
    with coordlock.connect(wire.direct) as other, coordlock.connect(wire.url) as client:
        costs = {}
        for name, backlog, delayed, at_work in (
            ("short", 60, 0, 0),
            ("long", 1500, 0, 0),
            ("delayed", 60, 1000, 0),
            ("at work", 200, 0, 100),
        ):
            queue = other.work_queue(name)
            fill(queue, backlog)
            fill(queue, delayed, delay=3600)
            taken = [queue.take(BOUND) for _ in range(at_work)]
            costs[name] = wire.cost(client.work_queue(name))
            for item in taken:
                item.release()
    # A claim, which reads the item, and an end; the first worker and the listings are shared.
    assert min(costs.values()) >= 2, costs
    assert max(costs.values()) <= 5, costs
    assert max(costs.values()) <= min(costs.values()) + 1.5, costs


def test_what_is_kept_is_told_without_reading_an_item(wire: Wire) -> None:
    with coordlock.connect(wire.direct) as other, coordlock.connect(wire.url) as client:
        queue = other.work_queue("q")
        with ThreadPoolExecutor(24) as pool:
            list(pool.map(lambda _: queue.put(b"x" * 50_000), range(40)))
        before = wire.proxy.counts()
        assert [one.name for one in client.admin.records()] == ["q"]
        assert client.work_queue("q").stats().waiting == 40
        spent = wire.proxy.counts() - before
    assert spent.received < 50_000, spent


def test_takes_that_find_nothing_leave_no_timers_behind(wire: Wire) -> None:
    with coordlock.connect(wire.direct) as client:
        queue = client.work_queue("q")
        timers: Any = client._access.engine.timers

        def find_nothing(_: int) -> None:
            with pytest.raises(WorkQueueEmpty):
                queue.take(0.3)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(find_nothing, range(24)))
        # Cancelled ones stay in its heap for a while, but are not armed again.
        eventually(
            lambda: sum(one.action is not None for *_, one in timers._heap) < 12, within=BOUND
        )
