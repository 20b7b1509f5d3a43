"""Consumers are left running while the service is away for longer than a session lives."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import coordlock
from coordlock.model.names import internal
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.types import WorkQueueStats
from tests.cli.command import Cli

BOUND = 60.0
TTL = 2.0
#: What is left: the item that fails whenever it is tried.
POISONED = WorkQueueStats(waiting=0, taken=0, delayed=0, dead=1)
POISON = b"poison"


class Service:
    """A service behind a proxy, and a client beside that."""

    def __init__(self, url: str, proxy: FaultProxy) -> None:
        parts = urlsplit(url)
        self.url = url.replace(parts.netloc, f"127.0.0.1:{proxy.port}")
        self.client = coordlock.connect(url)
        self.queue = self.client.work_queue("q")
        self._proxy = proxy

    def outage(self) -> None:
        """Be away for three times as long as a session lives, once a consumer waits."""
        backend = self.client._access.engine.backend
        line = internal("chores-q")
        eventually(lambda: backend.snapshot(line).result(BOUND).contenders, within=BOUND)
        self._proxy.refuse()
        self._proxy.drop_connections()
        time.sleep(3 * TTL)
        self._proxy.heal()

    def is_worked_off(self) -> bool:
        """Whether all is done but the poison."""
        return self.queue.stats() == POISONED


@pytest.fixture(
    params=[pytest.param(one, marks=getattr(pytest.mark, one)) for one in ("etcd", "zookeeper")]
)
def service(request: pytest.FixtureRequest, root: str) -> Iterator[Service]:
    server = urlsplit(request.getfixturevalue(request.param).url)
    url = f"{request.param}://{server.netloc}{root}?ttl={TTL:g}"
    with FaultProxy(str(server.hostname), int(server.port or 0)) as proxy:
        service = Service(url, proxy)
        with service.client:
            yield service


def in_threads(url: str, done: Counter[bytes], stop: coordlock.Cancellation) -> int:
    def handle(item: coordlock.Item) -> None:
        if item.data == POISON:
            raise ValueError("it can't be done")
        done[item.data] += 1

    with coordlock.connect(url) as client:
        queue = client.work_queue("q", max_failures=2)
        return queue.run(handle, concurrency=2, cancellation=stop)


def in_tasks(url: str, done: Counter[bytes], stop: coordlock.Cancellation) -> int:
    async def handle(item: coordlock.AsyncItem) -> None:
        if item.data == POISON:
            raise ValueError("it can't be done")
        done[item.data] += 1

    async def main() -> int:
        async with coordlock.connect_async(url) as client:
            queue = client.work_queue("q", max_failures=2)
            return await queue.run(handle, concurrency=2, cancellation=stop)

    return asyncio.run(main())


def in_a_loop(url: str, done: Counter[bytes], stop: coordlock.Cancellation) -> int:
    with coordlock.connect(url) as client:
        for item in client.work_queue("q", max_failures=2).consume():
            if item.data == b"stop":
                item.ack()
                break
            if item.data == POISON:
                item.nack()
                continue
            with item:
                done[item.data] += 1
    return sum(done.values())


@pytest.mark.faults
@pytest.mark.parametrize("work", [in_threads, in_tasks, in_a_loop])
def test_consumers_go_on_after_an_outage(
    service: Service, work: Callable[[str, Counter[bytes], coordlock.Cancellation], int]
) -> None:
    done: Counter[bytes] = Counter()
    stop = coordlock.Cancellation()
    with ThreadPoolExecutor() as pool:
        working = pool.submit(work, service.url, done, stop)
        for data in (b"one", POISON, b"two"):
            service.queue.put(data)
        eventually(service.is_worked_off, within=BOUND)
        service.outage()
        service.queue.put(b"three")
        eventually(service.is_worked_off, within=BOUND)
        assert not working.done()
        stop.cancel()
        if work is in_a_loop:
            service.queue.put(b"stop")
        assert working.result(BOUND) == 3
    assert done == Counter((b"one", b"two", b"three"))


@pytest.mark.faults
def test_consumers_in_the_shell_go_on_after_an_outage(service: Service, tmp_path: Path) -> None:
    cli, log = Cli(service.url, tmp_path), tmp_path / "log"
    script = "data=$(cat); [ $data != poison ] && echo $data >> log"
    words = ("queue", "work", "q", "--max-failures", "2", "--", "sh", "-c", script)
    with cli.started(*words) as process:
        for data in (b"one", POISON, b"two"):
            service.queue.put(data)
        eventually(service.is_worked_off, within=BOUND)
        service.outage()
        service.queue.put(b"three")
        eventually(service.is_worked_off, within=BOUND)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 128 + signal.SIGTERM
    assert log.read_text().split() == ["one", "two", "three"]
