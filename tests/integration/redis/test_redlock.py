"""Redlock on five real servers: a majority is the lock, and what takes it away."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import coordlock
from coordlock import GrantState, LockLost
from coordlock.errors import (
    BackendError,
    BackendUnavailable,
    ConfigurationError,
    Unsupported,
    WaitUnavailable,
)
from coordlock.testing.client_suite import error_of
from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisCluster, RedisServer, Redlock

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_leaks")]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Redlock]:
    """Servers that a test may stop."""
    with Redlock(tmp_path) as servers:
        yield servers


def keys(servers: Redlock, root: str, name: str) -> list[int]:
    """On which servers the lock has a key."""
    found = []
    for number, node in enumerate(servers.nodes):
        with node.client() as client:
            if client.exists(f"{{{root}}}:lock:{name}"):
                found.append(number)
    return found


def test_two_of_five_may_be_gone_and_not_three(servers: Redlock, root: str) -> None:
    with coordlock.connect(servers.url_for(root, ttl="12s", request_timeout="2s")) as client:
        for node in servers.nodes[:2]:
            node.kill()
        grant = client.lock("a").acquire(timeout=60)
        deadline = time.monotonic() + grant.remaining()
        beats = lambda: time.monotonic() + grant.remaining() > deadline + 1  # noqa: E731
        eventually(beats, "a heartbeat")
        servers.nodes[2].kill()
        with pytest.raises(WaitUnavailable, match="no majority"):
            client.lock("b").acquire(timeout=1)
        eventually(lambda: grant.state is GrantState.LOST)


def test_a_minority_is_given_back_at_once(servers: Redlock, root: str) -> None:
    """Another program has three of five keys, so the two that were free must not stay locked."""
    for node in servers.nodes[:3]:
        with node.client() as admin:
            admin.set(f"{{{root}}}:lock:a", "another program's")
    with coordlock.connect(servers.url_for(root, ttl="300s")) as client:
        assert client.lock("a").try_acquire() is None
        eventually(lambda: keys(servers, root, "a") == [0, 1, 2])


def test_a_silent_minority_costs_no_lock_and_little_time(servers: Redlock, root: str) -> None:

    def is_quick() -> bool:
        began = time.monotonic()
        client.lock("a").acquire(timeout=60).release()
        return time.monotonic() - began < 4.0

    # A server has a tenth of the time-to-live to answer.
    with coordlock.connect(servers.url_for(root, ttl="50s")) as client:
        client.lock("a").acquire(timeout=60).release()
        for node in servers.nodes[:2]:
            node.pause()
        eventually(is_quick)
        for node in servers.nodes[:2]:
            node.resume()


def test_the_lock_of_a_killed_process_ends_with_its_time_to_live(
    redlock: Redlock, root: str
) -> None:
    url = redlock.url_for(root, ttl="2s")
    program = (
        "import coordlock, sys, time\n"
        "coordlock.connect(sys.argv[1]).lock('a').acquire(timeout=60)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, url]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as holder,
        coordlock.connect(url, ttl="60s") as client,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
        client.lock("a").acquire(timeout=60).release()


def test_servers_that_lose_the_key_are_given_it_again_and_a_lost_majority_is_told(
    servers: Redlock, root: str
) -> None:
    with coordlock.connect(servers.url_for(root, ttl="12s")) as client:
        grant = client.lock("a").acquire(timeout=60)
        for nodes in (servers.nodes[:2], servers.nodes[3:]):  # a minority each time
            for node in nodes:
                node.kill()
                node.start()
            eventually(lambda: len(keys(servers, root, "a")) == 5)
        grant.check()
        for node in servers.nodes[:3]:
            with node.client() as admin:
                admin.flushall()
        eventually(lambda: grant.state is GrantState.LOST)
        with pytest.raises(LockLost, match=r"[345] of 5 servers have lost"):
            grant.check()
        with client.lock("a", timeout=60) as later:
            later.check()


def test_a_server_has_no_vote_for_a_time_to_live_after_its_restart(
    servers: Redlock, root: str
) -> None:
    url = servers.url_for(root, ttl="12s", restart_delay="auto")
    with coordlock.connect(url) as client:
        client.lock("a").acquire(timeout=60).release()
        for node in servers.nodes[:3]:
            node.kill()
        for node in servers.nodes[:3]:
            node.start()
        error_of(lambda: client.lock("a").acquire(timeout=0.5), BackendUnavailable, "restart")
        client.lock("a").acquire(timeout=60).release()


def test_a_grant_has_no_token_and_says_why(redlock: Redlock, root: str) -> None:
    with coordlock.connect(redlock.url_for(root)) as client, client.lock("a", timeout=10) as grant:
        with pytest.raises(Unsupported, match="redlock gives no tokens that always grow"):
            _ = grant.token
        with pytest.raises(Unsupported, match="no order"):
            grant.verify()
        with pytest.raises(Unsupported, match="no order"):
            client.lock("a").locked()
        assert client.lock("a").owned()
        assert "a" in repr(grant)


@pytest.mark.parametrize("hosts", ["r1", "r1,r2", "r1,r2,r1"])
def test_fewer_than_three_servers_are_refused(hosts: str) -> None:
    with pytest.raises(ConfigurationError, match="3 or more different servers"):
        coordlock.connect(f"redlock://{hosts}")


def limit(server: RedisServer, policy: str) -> None:
    with server.client() as admin:
        admin.config_set("maxmemory-policy", policy)
        admin.config_set("maxmemory", "100mb")


def warnings(url: str) -> str:
    with coordlock.connect(url) as client:
        return "\n".join(client.admin.describe().warnings)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl"])
def test_a_server_that_may_delete_locks_has_no_vote(
    servers: Redlock, root: str, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All keys of Redlock expire, so every policy but noeviction may delete them."""
    for node in servers.nodes[:2]:
        limit(node, policy)
    with coordlock.connect(servers.url_for(root)) as client, client.lock("a", timeout=10):
        eventually(lambda: keys(servers, root, "a") == [2, 3, 4])
        said = "\n".join(client.admin.describe().warnings)
    for node in servers.nodes[:2]:
        refusal = f"maxmemory-policy of {node.host}:{node.port} is {policy}"
        assert said.count(f"it has no vote: {refusal}") == 1
        assert [refusal in one.getMessage() for one in caplog.records].count(True) == 1
    limit(servers.nodes[2], policy)
    with pytest.raises(BackendError, match=f"is {policy}.*noeviction"):
        coordlock.connect(servers.url_for(root))


def test_a_server_that_deletes_nothing_has_a_vote(servers: Redlock, root: str) -> None:
    limit(servers.nodes[0], "noeviction")
    with servers.nodes[1].client() as admin:
        admin.config_set("maxmemory-policy", "allkeys-lru")  # without a limit
    with coordlock.connect(servers.url_for(root)) as client, client.lock("a", timeout=10):
        eventually(lambda: len(keys(servers, root, "a")) == 5)
    said = warnings(servers.url_for(root))
    assert said.count("maxmemory") == 1
    assert "when it is full, it has no vote for a new lock" in said


def test_doctor_says_what_a_restart_does(redlock: Redlock, root: str) -> None:
    assert "a restart may lose locks" in warnings(redlock.url_for(root))
    with coordlock.connect(redlock.url_for(root, restart_delay="auto")) as client:
        service = client.admin.describe()
    assert "restart" not in "\n".join(service.warnings)
    assert service.notes == ("a server has no vote for 15 s after its restart",)


def test_a_server_of_several_names_has_one_vote(servers: Redlock, root: str) -> None:
    first, second = servers.nodes[0].port, servers.nodes[1].port
    url = f"redlock://127.0.0.1:{first},localhost:{first}"
    with pytest.raises(BackendError, match="is the same server as"):
        coordlock.connect(f"{url},LOCALHOST:{first}{root}?restart_delay=0")
    with coordlock.connect(f"{url},127.0.0.1:{second}{root}?restart_delay=0&ttl=3s") as client:
        client.lock("a").acquire(timeout=60).release()
        assert "is the same server as" in "\n".join(client.admin.describe().warnings)
        servers.nodes[1].kill()
        with pytest.raises(WaitUnavailable, match="no majority"):
            client.lock("a").acquire(timeout=1)


def test_nodes_of_a_cluster_have_no_vote(cluster: RedisCluster, root: str) -> None:
    hosts = ",".join(f"{one.host}:{one.port}" for one in cluster.members)
    with pytest.raises(BackendError, match="is a node of a cluster"):
        coordlock.connect(f"redlock://{hosts}{root}?restart_delay=0")
