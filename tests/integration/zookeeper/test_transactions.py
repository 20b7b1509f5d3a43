"""Guarded data on a real ZooKeeper: nodes, access lists, new connections, several members."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.security import make_digest_acl

import coordlock
from coordlock import BackendError
from coordlock.errors import AuthenticationFailed, BackendUnavailable, TooLarge
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.types import VersionedValue
from testbed.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble
from tests.integration.zookeeper.conftest import BOUND


@pytest.fixture
def key(root: str) -> str:
    return f"{root}-data/key"


@pytest.fixture
def client(zookeeper: ZooKeeper, root: str, no_leaks: None) -> Iterator[coordlock.Client]:
    with coordlock.connect(zookeeper.url_for(root)) as client:
        yield client


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


# Nodes


def test_keys_are_plain_nodes_that_stay(client: coordlock.Client, key: str, kazoo: Any) -> None:
    with client.lock("orders") as grant:
        grant.transaction().put(key, b"data").commit()
        assert kazoo.get(key)[0] == b"data"
        assert kazoo.exists(key).ephemeralOwner == 0
        assert grant.read(key.rpartition("/")[0]) is None
        kazoo.set(key, b"kazoo's")
        assert grant.read(key) == VersionedValue(b"kazoo's", 2)
    client.close()
    assert kazoo.exists(key)


def test_a_key_that_is_proven_absent_leaves_nothing_behind(
    client: coordlock.Client, key: str, kazoo: Any
) -> None:
    with client.lock("orders") as grant:
        grant.transaction().expect(key, 0).delete(f"{key}-2/below").commit()
    assert kazoo.exists(key.rpartition("/")[0]) is None


def test_a_key_with_others_below_it_is_deleted_and_they_stay(
    client: coordlock.Client, key: str, kazoo: Any
) -> None:
    with client.lock("orders") as grant:
        grant.transaction().put(key, b"x").put(f"{key}/below", b"y").commit()
        grant.transaction().expect(key, 1).delete(key).commit()
        assert grant.read(key) is None
        assert grant.read(f"{key}/below") == VersionedValue(b"y", 1)
        grant.transaction().expect(key, 0).put(key, b"z").delete(f"{key}/below").commit()
        assert grant.read(key) == VersionedValue(b"z", 3)
        grant.transaction().delete(key).put(f"{key}/below", b"").commit()
        assert grant.read(key) is None
        grant.transaction().delete(key).delete(f"{key}/below").commit()
    assert kazoo.exists(key) is None


def test_a_key_below_a_contender_of_others_is_an_error(
    client: coordlock.Client, key: str, kazoo: Any
) -> None:
    kazoo.create(key, ephemeral=True, makepath=True)
    with client.lock("orders") as grant, pytest.raises(BackendError, match="Ephemerals"):
        grant.transaction().put(f"{key}/below", b"x").commit()


# Access lists


def test_too_much_data_is_refused_before_the_server_hangs_up(
    proxy: FaultProxy, proxied: str, key: str
) -> None:
    with coordlock.connect(proxied) as client, client.lock("orders") as grant:
        grant.transaction().put(key, b"1").commit()
        connections = proxy.counts().connections
        with pytest.raises(TooLarge):
            grant.transaction().put(key, b"x" * 2**20).commit()
        large = b"x" * (2**20 - 500)
        grant.transaction().put(key, large).commit()
        assert grant.read(key) == VersionedValue(large, 2)
        assert proxy.counts().connections == connections


def test_nodes_are_made_with_the_access_list_of_the_contenders(
    zookeeper: ZooKeeper, root: str, key: str, kazoo: Any
) -> None:
    url = zookeeper.url_for(root).replace("://", "://ann:secret@")
    with coordlock.connect(url) as client, client.lock("orders") as grant:
        grant.transaction().put(key, b"ann's").commit()
        kazoo.add_auth("digest", "ann:secret")
        wanted = [make_digest_acl("ann", "secret", all=True)]
        for path in (key, key.rpartition("/")[0], f"{root}/orders"):
            assert kazoo.get_acls(path)[0] == wanted


def test_a_node_that_may_not_be_used_is_named_and_nothing_is_written(
    zookeeper: ZooKeeper, client: coordlock.Client, root: str, key: str
) -> None:
    url = zookeeper.url_for(f"{root}-ann").replace("://", "://ann:secret@")
    with coordlock.connect(url) as ann, ann.lock("orders") as grant:
        grant.transaction().put(key, b"ann's").commit()
    with client.lock("orders") as grant:
        transaction = grant.transaction().put(f"{root}-mine", b"mine")
        with pytest.raises(AuthenticationFailed, match=key):
            grant.read(key)
        for refused in (
            transaction.put(key, b"stolen"),
            grant.transaction().expect(key, 1),
            grant.transaction().put(f"{key}-2", b"x"),
        ):
            with pytest.raises(AuthenticationFailed, match=key):
                refused.commit()
        assert grant.read(f"{root}-mine") is None
        grant.check()


# Several members


def test_a_holder_on_another_member_reads_all_that_was_written_before(
    ensemble: ZooKeeperEnsemble, root: str, key: str
) -> None:
    """Followers lag behind their leader. No write expects a version, so a stale read would show."""

    def work(client: coordlock.Client) -> None:
        for _ in range(40):
            with client.lock("orders") as grant:
                found = grant.read(key) or VersionedValue(b"0", 0)
                grant.transaction().put(key, b"%d" % (int(found.data) + 1)).commit()

    options = {"ttl": "60s", "request_timeout": "60s"}
    clients = [coordlock.connect(one.url_for(root, **options)) for one in ensemble.members]
    try:
        with ThreadPoolExecutor() as pool:
            for worker in [pool.submit(work, client) for client in clients]:
                worker.result(4 * BOUND)
        with clients[0].lock("orders") as grant:
            assert grant.read(key) == VersionedValue(b"120", 120)
    finally:
        for client in clients:
            client.close()


def test_a_client_that_moves_to_another_member_reads_all_that_was_written_before(
    ensemble: ZooKeeperEnsemble, root: str, key: str
) -> None:
    """It hears that the one before has left, and then its connection breaks."""
    host, port = ensemble.members[0].host, ensemble.members[0].port
    options = "?ttl=60s&request_timeout=60s"
    others = ",".join(member.endpoint.hosts[0] for member in ensemble.members[1:])
    with (
        FaultProxy(host, port) as proxy,
        coordlock.connect(f"zookeeper://127.0.0.1:{proxy.port},{others}{root}{options}") as client,
        coordlock.connect(ensemble.url_for(root, ttl="60s")) as other,
        ThreadPoolExecutor() as pool,
    ):
        for number in range(1, 5):
            holding = other.lock("orders").acquire(BOUND)
            waiting = pool.submit(client.lock("orders").acquire, BOUND)
            eventually(lambda: len(other.admin.contenders("orders")) == 2)
            holding.transaction().put(key, b"%d" % number).commit()
            holding.release()
            grant = waiting.result(BOUND)
            proxy.drop_connections()
            assert grant.read(key) == VersionedValue(b"%d" % number, number)
            grant.release()


def test_a_holder_reads_nothing_from_a_leader_that_may_have_been_replaced(
    ensemble: ZooKeeperEnsemble, root: str, key: str
) -> None:
    """It has no majority, and does not know that yet: it still answers `sync` and reads."""
    leader = ensemble.leader()
    followers = [member for member in ensemble.members if member is not leader]
    with coordlock.connect(leader.url_for(root, ttl="60s", request_timeout="2s")) as client:
        grant = client.lock("orders").acquire(BOUND)
        grant.transaction().put(key, b"1").commit()
        for follower in followers:
            follower.pause()
        try:
            with pytest.raises(BackendUnavailable):
                grant.read(key)
        finally:
            for follower in followers:
                follower.resume()
        eventually(lambda: grant.state is coordlock.GrantState.HELD)
        assert grant.read(key) == VersionedValue(b"1", 1)
