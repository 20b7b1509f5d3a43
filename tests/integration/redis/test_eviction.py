"""Redis may delete keys when its memory is full: such servers are refused, or lose all loudly."""

from __future__ import annotations

from functools import partial

import pytest

import coordlock
from coordlock import BackendError, GrantState, LockLost
from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_leaks")]

ROOM = 4_000_000


def limit(server: RedisServer, policy: str) -> None:
    """Let the server have little memory more than it uses now."""
    with server.client() as admin:
        used = admin.info("memory")["used_memory"]
        admin.config_set("maxmemory-policy", policy)
        admin.config_set("maxmemory", used + ROOM)


def fill(server: RedisServer, *, seconds: int | None = None) -> None:
    """Write until keys are evicted."""
    with server.client() as admin:
        for number in range(100):
            admin.set(f"other-{number}", b"x" * 200_000, ex=seconds)
        assert admin.info("stats")["evicted_keys"] > 0


def is_lost(grant: coordlock.Grant) -> bool:
    return grant.state is GrantState.LOST


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_server_that_may_delete_locks_is_refused(
    only: RedisServer, root: str, policy: str
) -> None:
    limit(only, policy)
    with pytest.raises(BackendError, match=f"maxmemory-policy is {policy}.*allow_eviction"):
        coordlock.connect(only.url_for(root))


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl"])
def test_a_policy_that_spares_locks_is_accepted(only: RedisServer, root: str, policy: str) -> None:
    limit(only, policy)
    with coordlock.connect(only.url_for(root)) as client:
        client.lock("a").acquire(timeout=5).release()


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-ttl"])
def test_a_policy_that_deletes_the_keys_shared_with_redis_py_is_refused(
    only: RedisServer, root: str, policy: str
) -> None:
    limit(only, policy)
    with pytest.raises(BackendError, match=f"maxmemory-policy is {policy}.*noeviction, or see"):
        coordlock.connect(only.url_for(root, compat="redis-py"))
    url = only.url_for(root, ttl="3s", compat="redis-py", allow_eviction="true")
    with coordlock.connect(url) as client:
        grant = client.lock("a").acquire(timeout=5)
        fill(only, seconds=1000)
        eventually(partial(is_lost, grant), within=10)


def test_an_eviction_ends_every_grant_and_says_why(only: RedisServer, root: str) -> None:
    limit(only, "allkeys-lru")
    url = only.url_for(root, ttl="3s", allow_eviction="true")
    with coordlock.connect(url) as client, coordlock.connect(url) as other:
        grant, second = client.lock("a").acquire(), other.lock("b").acquire()
        fill(only)
        for one in (grant, second):
            eventually(partial(is_lost, one), within=10)
            with pytest.raises(LockLost, match="eviction"):
                one.check()
        later = client.lock("a").acquire(timeout=10)
        assert later.token > grant.token


def test_an_eviction_under_a_policy_that_came_later_ends_every_grant(
    only: RedisServer, root: str
) -> None:
    with coordlock.connect(only.url_for(root, ttl="3s")) as client:
        grant = client.lock("a").acquire()
        limit(only, "allkeys-random")
        fill(only)
        eventually(lambda: grant.state is GrantState.LOST, within=10)
        with pytest.raises(BackendError, match="allkeys-random"):
            client.lock("a").acquire(timeout=5)


def test_an_eviction_of_keys_that_expire_ends_nothing(only: RedisServer, root: str) -> None:
    with coordlock.connect(only.url_for(root, ttl="2s")) as client, only.client() as admin:
        grant = client.lock("a").acquire()
        limit(only, "volatile-lru")
        fill(only, seconds=1000)
        key = f"{{{root}}}:state"
        eventually(lambda: int(admin.hget(key, "evicted") or 0) > 0, "a heartbeat", within=10)
        grant.check()
        assert grant.release() is True
