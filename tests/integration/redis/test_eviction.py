"""Redis may delete keys when its memory is full: servers with such a policy are refused."""

from __future__ import annotations

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


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_server_that_may_delete_locks_is_refused(
    only: RedisServer, root: str, policy: str
) -> None:
    limit(only, policy)
    with pytest.raises(BackendError, match=f"maxmemory-policy is {policy}.*noeviction"):
        coordlock.connect(only.url_for(root))


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl"])
def test_a_policy_that_spares_locks_is_accepted(only: RedisServer, root: str, policy: str) -> None:
    limit(only, policy)
    with coordlock.connect(only.url_for(root)) as client:
        client.lock("a").acquire(timeout=60).release()


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-ttl"])
def test_a_policy_that_deletes_the_keys_shared_with_redis_py_is_refused(
    only: RedisServer, root: str, policy: str
) -> None:
    limit(only, policy)
    with pytest.raises(BackendError, match=f"maxmemory-policy is {policy}.*noeviction"):
        coordlock.connect(only.url_for(root, compat="redis-py"))


def test_a_policy_that_comes_later_ends_every_grant(only: RedisServer, root: str) -> None:
    """Before Redis deletes a key: it does not say which keys it deletes."""
    with coordlock.connect(only.url_for(root, ttl="12s")) as client:
        grant = client.lock("a").acquire()
        limit(only, "allkeys-random")
        eventually(lambda: grant.state is GrantState.LOST)
        with pytest.raises(LockLost, match="eviction"):
            grant.check()
        with pytest.raises(BackendError, match="allkeys-random"):
            client.lock("a").acquire(timeout=60)
