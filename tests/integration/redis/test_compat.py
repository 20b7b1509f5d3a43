"""redis-py's `Lock` and coordlock's on the same names: neither holds while the other one does."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import redis as redis_py

import coordlock
from coordlock import BackendError, GrantState, LockLost, NameConflict
from coordlock.testing.client_suite import error_of
from coordlock.testing.waiting import eventually
from testbed.servers.redis import Redis, RedisCluster, RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_leaks")]

#: Neither is polled more often than this.
PAUSE = 0.1


@pytest.fixture
def url(redis: Redis, root: str) -> str:
    return redis.url_for(root, compat="redis-py", ttl="60s")


@pytest.fixture
def client(url: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(url) as client:
        yield client


@pytest.fixture
def store(redis: Redis) -> Iterator[redis_py.Redis]:
    with redis.client() as store:
        yield store


@pytest.fixture
def name(root: str) -> str:
    """The name of a lock, and so of a key, that no other test has."""
    return f"job {root[1:]}"


class Waiter(threading.Thread):
    """Acquires, and notes when."""

    def __init__(self, client: coordlock.Client, name: str) -> None:
        super().__init__(daemon=True)
        self.lock = client.lock(name)
        self.grant: coordlock.Grant | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.grant = self.lock.acquire(timeout=30)
        except BaseException as error:
            self.error = error

    def granted(self) -> coordlock.Grant:
        self.join(30)
        assert self.grant is not None, self.error
        return self.grant


def is_queue_of(client: coordlock.Client, name: str, count: int) -> bool:
    return len(client.lock(name).contenders()) == count


def test_a_lock_of_redis_py_waits_for_ours(
    client: coordlock.Client, store: redis_py.Redis, name: str
) -> None:
    lock = store.lock(name, timeout=60)
    with client.lock(name).acquire(timeout=60):
        assert lock.locked()
        assert lock.acquire(blocking=False) is False
    assert lock.acquire(blocking=False) is True
    lock.release()


def test_ours_waits_for_a_lock_of_redis_py(
    client: coordlock.Client, store: redis_py.Redis, name: str
) -> None:
    lock = store.lock(name)
    assert lock.acquire(blocking=False)
    assert client.lock(name).try_acquire() is None
    late = lambda: client.lock(name).acquire(timeout=2 * PAUSE)  # noqa: E731
    error_of(late, coordlock.AcquireTimeout, "redis-py")
    waiters = [Waiter(client, name) for _ in range(3)]
    eventually(lambda: len(client.lock(name).contenders()) == 4, "the waiters")
    lock.release()
    eventually(lambda: sum(one.grant is not None for one in waiters) == 1)
    assert lock.acquire(blocking=False) is False
    while waiters:
        eventually(lambda: any(one.grant is not None for one in waiters))
        [first] = [one for one in waiters if one.grant is not None]
        first.granted().release()
        waiters.remove(first)
    assert store.exists(name) == 0


def test_a_waiter_goes_on_when_a_lock_of_redis_py_expires_and_not_before(
    client: coordlock.Client, store: redis_py.Redis, name: str
) -> None:
    lock = store.lock(name, timeout=30)
    assert lock.acquire(blocking=False)
    waiter = Waiter(client, name)
    eventually(lambda: len(client.lock(name).contenders()) == 2, "the waiter")
    until = time.monotonic() + 1.0
    lock.extend(1.0, replace_ttl=True)
    waiter.granted().release()
    assert time.monotonic() > until


def test_the_lock_of_a_killed_process_ends_with_its_time_to_live(
    redis: Redis, root: str, store: redis_py.Redis, name: str
) -> None:
    """Also where no client of coordlock looks after it."""
    url = redis.url_for(root, compat="redis-py", ttl="3s")
    program = (
        "import coordlock, sys, time\n"
        "grant = coordlock.connect(sys.argv[1]).lock(sys.argv[2]).acquire(timeout=60)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, url, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        eventually(lambda: bool(store.exists(name)), "the lock")
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
        assert store.lock(name, timeout=60).acquire(blocking_timeout=60)


def test_several_locks_wait_for_one_of_redis_py(
    client: coordlock.Client, store: redis_py.Redis, name: str
) -> None:
    both = client.multi_lock([name, name + "2"])
    lock = store.lock(name + "2", timeout=60)
    assert lock.acquire(blocking=False)
    assert both.try_acquire() is None
    assert store.lock(name, timeout=60).acquire(blocking=False)
    store.delete(name)
    lock.release()
    with both.acquire(timeout=60):
        assert store.exists(name, name + "2") == 2
    assert store.exists(name, name + "2") == 0


def test_readers_share_among_themselves_and_not_with_redis_py(
    client: coordlock.Client, store: redis_py.Redis, name: str
) -> None:
    with client.read_lock(name).acquire(timeout=60), client.read_lock(name).acquire(timeout=60):
        assert store.lock(name).acquire(blocking=False) is False
    assert store.lock(name, timeout=60).acquire(blocking=False)
    assert client.read_lock(name).try_acquire() is None
    with pytest.raises(NameConflict, match="redis-py"):
        client.semaphore(name, 2).acquire(timeout=1)
    store.delete(name)


def test_the_lock_is_lost_when_somebody_deletes_its_key_and_another_has_it(
    url: str, store: redis_py.Redis, name: str
) -> None:
    with coordlock.connect(url, ttl="12s") as client:
        grant = client.lock(name).acquire(timeout=60)
        store.delete(name)
        eventually(lambda: bool(store.exists(name)), "the next heartbeat to make it again")
        assert grant.state is not GrantState.LOST
        store.delete(name)
        lock = store.lock(name, timeout=60)
        assert lock.acquire(blocking=False)
        eventually(lambda: grant.state is GrantState.LOST)
        with pytest.raises(LockLost):
            grant.check()
        assert lock.owned()
        lock.release()


def test_an_operator_sees_and_removes_a_lock_of_redis_py(
    client: coordlock.Client, store: redis_py.Redis, name: str
) -> None:
    assert client.lock(name).contenders() == ()
    for waiting in (False, True):
        lock = store.lock(name, timeout=60)
        assert lock.acquire(blocking=False)
        waiter = Waiter(client, name) if waiting else None
        eventually(partial(is_queue_of, client, name, 1 + waiting))
        holder = client.lock(name).contenders()[0]
        assert holder.holding
        assert holder.owner is not None
        assert holder.owner.label == "redis-py"
        assert client.admin.evict(holder) is True
        assert not lock.owned()
        if waiter is not None:
            waiter.granted().release()
    assert store.exists(name) == 0


def test_something_else_at_the_key_is_refused_and_kept(
    client: coordlock.Client, store: redis_py.Redis, name: str
) -> None:
    store.hset(name, "mine", "1")
    with pytest.raises(BackendError, match="another program"):
        client.lock(name).acquire(timeout=60)
    assert store.hgetall(name) == {b"mine": b"1"}
    store.delete(name)
    client.lock(name).acquire(timeout=60).release()


def test_after_a_restart_the_key_stays_as_long_as_earlier_grants_may(
    tmp_path: Path, root: str
) -> None:
    arguments = ["--appendfsync", "always"]
    with RedisServer(tmp_path / "redis", persistent=True, arguments=arguments) as server:
        url = server.url_for(root, compat="redis-py", ttl="3s", restart_delay="auto")
        with server.client() as store, coordlock.connect(url) as client:
            grant = client.lock("a").acquire(timeout=60)
            until = time.monotonic() + grant.remaining()
            server.kill()
            server.start()
            lock = store.lock("a", timeout=60)
            assert lock.acquire(blocking_timeout=60)
            assert time.monotonic() > until
            lock.release()


def test_a_cluster_is_refused_because_scripts_reach_one_slot(
    cluster: RedisCluster, root: str
) -> None:
    with pytest.raises(BackendError, match="cluster"):
        coordlock.connect(cluster.url_for(root, compat="redis-py", connect_timeout="2s"))


def test_recipes_keep_nothing_at_keys_of_other_programs(
    client: coordlock.Client, store: redis_py.Redis, name: str
) -> None:
    """Queues of coordlock's own have no key; those with a name of the user's do."""
    before = set(store.scan_iter(match="[^{]*"))
    counter = client.counter(name)
    counter.add(1)
    with client.election(name).campaign(timeout=60):
        assert store.lock(name).acquire(blocking=False) is False
    assert set(store.scan_iter(match="[^{]*")) <= before
