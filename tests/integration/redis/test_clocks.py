"""The server's clock jumps: a real server's, by libfaketime."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisServer
from testbed.systems.wall_clocks import WallClock

pytestmark = [pytest.mark.redis, pytest.mark.faults]

HOUR = 3600


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path / "clock")


@pytest.fixture
def server(tmp_path: Path, clock: WallClock) -> Iterator[RedisServer]:
    """One that forgets all when it is restarted."""
    with RedisServer(tmp_path / "redis", environment=clock.environment_for_redis) as server:
        yield server


def jump(server: RedisServer, clock: WallClock, seconds: int) -> None:
    """Set the clock, and see that the server has noticed."""
    clock.set(seconds)
    with server.client() as admin:
        eventually(lambda: abs(admin.time()[0] - time.time() - seconds) < 5)


def test_a_clock_that_is_set_back_keeps_holders_and_order(
    server: RedisServer, clock: WallClock, root: str
) -> None:
    url = server.url_for(root, ttl="12s")
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        first = one.lock("a").acquire(timeout=60)
        jump(server, clock, -HOUR)
        deadline = time.monotonic() + first.remaining()
        beats = lambda: time.monotonic() + first.remaining() > deadline + 1  # noqa: E731
        eventually(beats, "a heartbeat after the jump")
        assert two.lock("a").try_acquire() is None
        assert first.release()
        second = two.lock("a").acquire(timeout=60)
        assert second.token > first.token
        assert second.release()


def test_a_clock_that_is_set_back_holds_grants_up_for_the_restart_delay_alone(
    server: RedisServer, clock: WallClock, root: str
) -> None:
    """Of a root that came when the server had run for longer than that."""
    url = server.url_for(root, ttl="3s", restart_delay="auto")
    with server.client() as admin:
        eventually(lambda: admin.info("server")["uptime_in_seconds"] >= 5)
    with coordlock.connect(url) as client:
        client.lock("a").acquire(timeout=60).release()
        jump(server, clock, -HOUR)
        client.lock("a").acquire(timeout=60).release()


def test_a_dead_clients_lock_is_free_once_a_clock_that_was_set_back_has_caught_up(
    server: RedisServer, clock: WallClock, root: str
) -> None:
    url = server.url_for(root, ttl="60s")
    with coordlock.connect(url) as client, server.client() as admin:
        client.lock("a").acquire(timeout=60).release()
        began, now = time.monotonic(), admin.time()[0]
        jump(server, clock, -6)
        # A client that has died: nobody extends its session, which ends 9 s after `began`.
        admin.zadd(f"{{{root}}}:sessions", {"dead-1": (now + 3) * 1_000_000})
        admin.zadd(f"{{{root}}}:queue:a", {"id": now * 1_000_000})
        admin.hset(f"{{{root}}}:claims:a", "id", "lock dead-1 {}")
        admin.hset(f"{{{root}}}:held:dead-1", "id", "a")
        admin.sadd(f"{{{root}}}:queues", "a")
        client.lock("a").acquire(timeout=60).release()
        assert 7 < time.monotonic() - began < 60


def test_a_clock_that_was_ahead_at_a_restart_does_not_hold_grants_up_once_it_is_right(
    server: RedisServer, clock: WallClock, root: str
) -> None:
    url = server.url_for(root, ttl="3s", restart_delay="auto")
    with coordlock.connect(url) as client, server.client() as admin:
        client.lock("a").acquire(timeout=60).release()
        server.kill()
        clock.set(HOUR)
        server.start()
        eventually(lambda: admin.exists(f"{{{root}}}:state"), "the client to be there again")
        jump(server, clock, 0)
        client.lock("a").acquire(timeout=60).release()
