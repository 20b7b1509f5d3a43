"""Another server takes over: by Sentinel, in a cluster, and with fewer replicas than wanted."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis as redis_py

import coordlock
from coordlock import GrantState, LockLost
from coordlock.errors import BackendUnavailable, WaitUnavailable
from coordlock.testing.client_suite import error_of
from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisCluster, RedisServer, Sentinel
from testbed.systems.redis import RedisSentinelSystem
from tests.integration.redis.test_access import costs_half_a_request

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_leaks")]


def test_a_failover_ends_every_grant_and_the_next_one_has_a_larger_token(
    only: RedisServer, replica: RedisServer, tmp_path: Path, root: str
) -> None:
    with Sentinel(tmp_path / "sentinel", only) as sentinel:
        eventually(lambda: sentinel.knows()["num-slaves"] == "1")
        with coordlock.connect(sentinel.url_for(root, ttl="3s")) as client:
            grant = client.lock("a").acquire()
            only.kill()
            eventually(lambda: grant.state is GrantState.LOST)
            # A Sentinel that stood still does nothing for 30 s.
            later = client.lock("a").acquire(timeout=120)
            assert later.token > grant.token
            with replica.client() as admin:
                assert admin.exists(f"{{{root}}}:state")
                assert admin.info("replication")["role"] == "master"
            later.release()


def test_a_sentinel_that_knows_no_such_primary_says_so(
    only: RedisServer, tmp_path: Path, root: str
) -> None:
    with (
        Sentinel(tmp_path / "sentinel", only) as sentinel,
        pytest.raises(BackendUnavailable, match="knows a primary 'other'"),
    ):
        coordlock.connect(sentinel.url_for(root, sentinel="other", connect_timeout="1s"))


def test_a_sentinel_that_names_an_earlier_primary_is_not_the_last_word(
    only: RedisServer, tmp_path: Path, root: str
) -> None:
    with (
        RedisServer(tmp_path / "earlier") as earlier,
        Sentinel(tmp_path / "stale", earlier) as stale,
        Sentinel(tmp_path / "sentinel", only) as sentinel,
    ):
        earlier.kill()
        hosts = f"127.0.0.1:{stale.port},127.0.0.1:{sentinel.port}"
        url = f"redis://{hosts}{root}?sentinel={Sentinel.NAME}&restart_delay=0"
        with coordlock.connect(url) as client:
            client.lock("a").acquire(timeout=60).release()


def test_a_sentinel_that_is_silent_costs_a_part_of_the_time_and_that_once(
    only: RedisServer, tmp_path: Path, root: str
) -> None:
    with (
        Sentinel(tmp_path / "silent", only) as silent,
        Sentinel(tmp_path / "sentinel", only) as sentinel,
    ):
        hosts = f"127.0.0.1:{silent.port},127.0.0.1:{sentinel.port}"
        options = f"sentinel={Sentinel.NAME}&restart_delay=0&request_timeout=2s"
        costs_half_a_request(silent, f"redis://{hosts}{root}?{options}")


def test_an_idle_holder_learns_that_another_server_is_the_primary(
    only: RedisServer, replica: RedisServer, tmp_path: Path, root: str
) -> None:
    """Though the earlier primary still answers, and only the news have moved."""
    with Sentinel(tmp_path / "sentinel", only) as sentinel:
        eventually(lambda: sentinel.knows()["num-slaves"] == "1")
        with coordlock.connect(sentinel.url_for(root, ttl="60s")) as client:
            grant = client.lock("a").acquire()
            with replica.client() as admin:
                admin.replicaof("no", "one")
            with sentinel_client(sentinel) as admin:
                admin.execute_command("SENTINEL", "REMOVE", Sentinel.NAME)
                admin.execute_command(
                    "SENTINEL", "MONITOR", Sentinel.NAME, replica.host, replica.port, 1
                )
            with only.client() as admin:
                admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            eventually(lambda: grant.state is GrantState.LOST, within=60)
            with pytest.raises(LockLost, match="another Redis answers"):
                grant.check()


def sentinel_client(sentinel: Sentinel) -> redis_py.Redis:
    return redis_py.Redis.from_url(sentinel.url)


def test_a_promoted_server_without_the_root_grants_nothing_at_first(
    only: RedisServer, tmp_path: Path, root: str
) -> None:
    with RedisServer(tmp_path / "replica") as replica, replica.client() as admin:
        replica.follow(only)
        eventually(lambda: admin.info("server")["uptime_in_seconds"] >= 4)
        only.kill()
        began = time.monotonic()
        admin.replicaof("no", "one")
        with coordlock.connect(replica.url_for(root, ttl="3s", restart_delay="auto")) as client:
            client.lock("a").acquire(timeout=60).release()
            assert time.monotonic() - began >= 2.5


@pytest.mark.faults
@pytest.mark.long  # `test_what_no_replica_has_is_not_granted` is the short one
@pytest.mark.parametrize("replicas", [0, 1])
def test_who_still_reaches_the_earlier_primary_holds_on_unless_a_replica_must_know(
    tmp_path: Path, root: str, replicas: int
) -> None:
    """The earlier primary is cut off from its replica and from Sentinel, and not from clients."""
    with RedisSentinelSystem(tmp_path / "servers") as system, ExitStack() as stack:
        url = system.url(root, ttl="3s", request_timeout="2s")
        one = stack.enter_context(coordlock.connect(url, wait_replicas=replicas))
        first = one.lock("a").acquire(timeout=30)
        for other in ("n2", "n3"):
            system.network.silence("n1", other)
            system.network.silence(other, "n1")
        eventually(lambda: system.leader() == "n2", within=60)
        two = stack.enter_context(coordlock.connect(url))
        second = two.lock("a").acquire(timeout=60)
        assert (first.state is GrantState.LOST) is bool(replicas)
        assert second.token > first.token
        system.network.heal()
        eventually(lambda: first.state is GrantState.LOST, "the earlier primary to be told")
        second.check()


def test_a_failover_there_and_back_ends_every_grant_though_the_server_has_not_restarted(
    only: RedisServer, replica: RedisServer, root: str
) -> None:
    """No script has run on the other server, and no connection was lost."""
    coordlock.connect(only.url_for(root)).close()
    with only.client() as admin:
        admin.hset(f"{{{root}}}:state", "since", 1)  # as if the server had run for long
    with (
        coordlock.connect(only.url_for(root, ttl="60s", restart_delay="auto")) as one,
        coordlock.connect(only.url_for(root, ttl="60s", restart_delay="auto")) as two,
        only.client() as admin,
        replica.client() as other,
    ):
        two.lock("b").acquire(timeout=60).release()
        other.replicaof("no", "one")
        grant = one.lock("a").acquire(timeout=60)
        only.follow(replica)
        assert not admin.exists(f"{{{root}}}:queue:a")
        admin.replicaof("no", "one")
        error_of(lambda: two.lock("a").acquire(timeout=0.5), WaitUnavailable, "restart_delay")
        eventually(lambda: grant.state is GrantState.LOST)


def test_a_replica_that_comes_ends_no_grant(only: RedisServer, tmp_path: Path, root: str) -> None:
    with coordlock.connect(only.url_for(root, ttl="12s")) as client:
        grant = client.lock("a").acquire(timeout=60)
        with RedisServer(tmp_path / "replica") as replica:
            replica.follow(only)
            deadline = time.monotonic() + grant.remaining()
            beats = lambda: time.monotonic() + grant.remaining() > deadline + 1  # noqa: E731
            eventually(beats, "a heartbeat")
        assert grant.release() is True


# wait_replicas


def test_a_server_without_replicas_grants_nothing_where_one_is_wanted(
    only: RedisServer, root: str
) -> None:
    url = only.url_for(root, wait_replicas=1, request_timeout="1s", connect_timeout="2s")
    with pytest.raises(BackendUnavailable, match="0 of the 1 replicas"):
        coordlock.connect(url)


def test_what_no_replica_has_is_not_granted(
    only: RedisServer, replica: RedisServer, root: str
) -> None:
    url = only.url_for(root, ttl="9s", wait_replicas=1, request_timeout="1s")
    with coordlock.connect(url) as client:
        with client.lock("a").acquire(timeout=60) as grant, replica.client() as copy:
            assert copy.zcard(f"{{{root}}}:queue:a") == 1
            grant.check()
        held = client.lock("b").acquire(timeout=60)
        replica.pause()
        with pytest.raises(WaitUnavailable, match="wait_replicas"):
            client.lock("c").acquire(timeout=2)
        # Its heartbeats are not copied, so that they move no deadline.
        eventually(lambda: held.state is GrantState.LOST)
        replica.resume()
        eventually(lambda: client.lock("c").try_acquire())


# A cluster


def test_a_slot_that_moves_ends_the_sessions_of_its_root(cluster: RedisCluster, root: str) -> None:
    key = f"{{{root}}}:state"
    with coordlock.connect(cluster.url_for(root, ttl="3s", request_timeout="2s")) as client:
        grant = client.lock("a").acquire(timeout=60)
        owner = cluster.owner(key)
        target = next(member for member in cluster.members if member is not owner)
        steps = cluster.move(key, target)
        next(steps)
        for _ in steps:
            with pytest.raises(WaitUnavailable):  # no part is taken for the whole
                client.lock("a").acquire(timeout=0.1)
        eventually(lambda: grant.state is GrantState.LOST)
        later = client.lock("a").acquire(timeout=60)
        assert later.token > grant.token
        assert cluster.owner(key) is target
        later.release()


def test_a_node_that_is_a_replica_after_a_failover_leads_to_the_primary(
    tmp_path: Path, root: str
) -> None:
    """Where the URL names that node alone."""
    with (
        RedisCluster(tmp_path / "cluster") as cluster,
        RedisServer(tmp_path / "replica", clustered=True) as replica,
    ):
        cluster.replicate(f"{{{root}}}:state", replica)
        with coordlock.connect(replica.url_for(root)) as client:
            client.lock("a").acquire(timeout=60).release()


def test_a_replica_takes_over_in_a_cluster(tmp_path: Path, root: str) -> None:
    with (
        RedisCluster(tmp_path / "cluster") as cluster,
        RedisServer(tmp_path / "replica", clustered=True) as replica,
        replica.client() as admin,
    ):
        key = f"{{{root}}}:state"
        cluster.replicate(key, replica)
        with coordlock.connect(cluster.url_for(root, ttl="3s")) as client:
            grant = client.lock("a").acquire(timeout=60)
            cluster.owner(key).kill()
            admin.execute_command("CLUSTER FAILOVER", "TAKEOVER")
            eventually(lambda: grant.state is GrantState.LOST)
            later = client.lock("a").acquire(timeout=30)
            assert later.token > grant.token
            later.release()
