"""What a hundred idle clients send: little, also when there is an item; and what busy ones do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from typing import Any

import pytest

import coordlock
from coordlock.backend import Operation, Put
from coordlock.errors import VersionMismatch
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.redis_frames import RedisFrames
from coordlock.testing.waiting import eventually

BOUND = 60.0
CLIENTS = 100
FRAMERS: dict[str, Callable[[], Any]] = {"etcd": GrpcFrames, "redis": RedisFrames}
#: How many readings one item may cause: each client lists what is ready once, and the client that
#: gets the item a few times more.
READINGS = CLIENTS + 10
#: For how long an idle crowd is observed.
SECONDS = 10.0


class Crowd:
    """Clients that wait for an item, behind a proxy."""

    def __init__(self, stack: ExitStack, service: str, url: str, proxy: FaultProxy) -> None:
        self.service, self.proxy = service, proxy
        self.claims: list[str] = []
        self.done: Counter[bytes] = Counter()
        self._stop = coordlock.Cancellation()
        pool = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        stack.callback(self._stop.cancel)
        self.queues = []
        for _ in range(CLIENTS):
            client = stack.enter_context(coordlock.connect(url))
            queue = client.work_queue("q")
            self.queues.append(queue)
            self._count_claims(client._access.engine.backend)
            pool.submit(queue.run, self._handle, cancellation=self._stop)
        # They find out which of them does the chores.
        eventually(lambda: all(map(is_idle, self.queues)), within=BOUND)

    def _handle(self, item: coordlock.Item) -> None:
        self.done[item.data] += 1

    def _count_claims(self, backend: Any) -> None:
        write = backend.write

        def counted(operations: Sequence[Operation], *guards: Any) -> Any:
            self.claims += [
                one.key for one in operations if isinstance(one, Put) and "/claims/" in one.key
            ]
            return write(operations, *guards)

        backend.write = counted


def is_idle(queue: coordlock.WorkQueue) -> bool:
    return queue._share().consumer.is_following


@pytest.fixture(params=list(FRAMERS))
def crowd(request: pytest.FixtureRequest, root: str) -> Iterator[Crowd]:
    server = request.getfixturevalue(request.param)
    options = "&restart_delay=0s" if request.param == "redis" else ""
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(server.host, server.port, FRAMERS[request.param]))
        url = f"{request.param}://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=30s{options}"
        yield Crowd(stack, request.param, url, proxy)


@pytest.mark.long  # each client looks every twenty seconds, so this takes half a minute
@pytest.mark.timeout(300)
def test_a_hundred_idle_clients_are_quiet_and_one_item_wakes_few(crowd: Crowd) -> None:
    def requests(seconds: float) -> int:
        with crowd.proxy.counting() as sent:
            time.sleep(seconds)
        return sum(sent.requests.values())

    eventually(lambda: requests(1.0) <= 20, within=BOUND)  # all have begun to follow
    with crowd.proxy.counting() as idle:
        time.sleep(SECONDS)
    assert sum(idle.requests.values()) <= 20 * SECONDS, idle.requests
    claims, readings = [], []
    for number in range(3):
        crowd.claims.clear()
        data = b"%d" % number
        with crowd.proxy.counting() as sent:
            crowd.queues[0].put(data)
            eventually(lambda: crowd.done[data] == 1, within=BOUND)  # noqa: B023
            time.sleep(1.0)  # as long as the pauses before claims
        claims.append(len(crowd.claims))
        readings.append(sum(sent.requests[kind] for kind in ("Range", "list", "read", "names")))
    # A hundred clients in one process learn of a claim late, perhaps when the pauses are over.
    assert median(claims) <= 5, claims
    assert median(readings) <= READINGS, readings
    assert set(crowd.done.values()) == {1}


@pytest.mark.redis
def test_twenty_busy_clients_are_seldom_refused_though_each_item_fails_once(
    request: pytest.FixtureRequest, root: str
) -> None:
    items = 800
    refused: list[bool] = []  # which claims were
    url = request.getfixturevalue("redis").url_for(root, ttl="60s")

    def ended(written: Any) -> None:
        refused.append(isinstance(written.exception(), VersionMismatch))

    def count(backend: Any) -> None:
        write = backend.write

        def counted(operations: Sequence[Operation], *guards: Any) -> Any:
            written = write(operations, *guards)
            if any(isinstance(one, Put) and "/claims/" in one.key for one in operations):
                written.add_done_callback(ended)
            return written

        backend.write = counted

    def work(queue: coordlock.WorkQueue) -> int:
        done = 0
        for item in queue.consume(timeout=2.0):
            with item:
                if item.deliveries == 1:
                    item.nack()
                else:
                    done += 1
        return done

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(20))
        clients = [stack.enter_context(coordlock.connect(url)) for _ in range(20)]
        clients[0].work_queue("q").put_many([b"one"] * items)
        for client in clients:
            count(client._access.engine.backend)
        assert sum(pool.map(work, [client.work_queue("q") for client in clients])) == items
    made = refused.count(False)
    assert made >= 2 * items
    assert refused.count(True) <= 0.2 * made
