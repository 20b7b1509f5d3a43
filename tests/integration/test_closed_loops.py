"""Event loops that are closed while their tasks wait for a lock."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import coordlock
from coordlock.testing.waiting import eventually


@pytest.fixture(
    params=[
        "memory",
        "local",
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
        pytest.param("redis", marks=pytest.mark.redis),
    ]
)
def url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return f"memory://{root}"
        case "local":
            return f"local://{tmp_path}/state?request_timeout=30s"
        case service:
            server = request.getfixturevalue(service)
            return str(server.url_for(root, ttl="15s"))


@pytest.mark.filterwarnings("ignore:a client of:ResourceWarning")
def test_a_waiter_whose_event_loop_was_closed_gives_its_place_up(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlock.kernel.tickets.SWEEP_PAUSE_S", 0.5)
    clients: list[coordlock.AsyncClient] = []
    tasks: list[asyncio.Task[object]] = []
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        client = await coordlock.connect_async(url)
        clients.append(client)
        tasks.append(asyncio.ensure_future(client.lock("q").acquire()))
        await asyncio.sleep(0)

    with coordlock.connect(url) as other:
        grant = other.lock("q").acquire()
        loop.run_until_complete(wait())
        while len(other.admin.contenders("q")) < 2:
            loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()
        grant.release()
        started = time.monotonic()
        other.lock("q").acquire(timeout=60).release()
        assert time.monotonic() - started < 12  # a sweep is due each half second
        eventually(lambda: not other.admin.contenders("q"))
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it never goes on
    asyncio.run(clients[0].close())
