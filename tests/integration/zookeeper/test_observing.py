"""Observations show what is there, whatever happens to the connection, the session and servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from coordlock_zookeeper import ZookeeperBackend
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from coordlock.backend import Delete, Expect, Observation, Put, Queue, VersionedValue
from coordlock.errors import AuthenticationFailed, BackendUnavailable, VersionMismatch
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble
from tests.integration.observing import follow, is_fresh, is_stale, put, values
from tests.integration.zookeeper.conftest import BOUND, Parties

Join = Callable[..., ZookeeperBackend]


@pytest.fixture
def join(parties: Parties) -> Join:
    """Makes backends that have opened nothing yet."""

    def make(url: str, client: object | None = None) -> ZookeeperBackend:
        return parties(url, client, opened=False).backend

    return make


@pytest.fixture
def other(join: Join, zookeeper: ZooKeeper, root: str) -> ZookeeperBackend:
    """A client that the proxy's faults don't touch."""
    return join(zookeeper.url_for(root, ttl="60s"))


@pytest.fixture
def observer(join: Join, proxy: FaultProxy, root: str) -> ZookeeperBackend:
    """A client behind the proxy that probes every twenty seconds."""
    return join(f"zookeeper://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=30s")


@pytest.fixture
def folder(root: str) -> str:
    return f"{root}-data/"


# What is sent


def test_a_thousand_keys_are_read_once_and_a_change_reads_what_it_concerns(
    observer: ZookeeperBackend, other: ZookeeperBackend, proxy: FaultProxy, folder: str
) -> None:
    names = [f"k{number:04}" for number in range(1000)]
    for start in range(0, 1000, 250):
        put(other, folder, **dict.fromkeys(names[start : start + 250], b"1"))
    with proxy.counting() as sent:
        observed = follow(observer, folder)
    assert observed.view.state is not None
    assert list(observed.view.state.values) == [folder + name for name in names]
    assert (sent.requests["getChildren2"], sent.requests["getData"]) == (1, 1000)
    with proxy.counting() as sent:
        put(other, folder, k0500="2")
        eventually(lambda: (values(observed) or {})["k0500"] == b"2")
        other.write([Delete(folder + "k0001")]).result(BOUND)
        eventually(lambda: "k0001" not in (values(observed) or {}))
        put(other, folder, new="3")
        eventually(lambda: "new" in (values(observed) or {}))
    assert (sent.requests["getChildren2"], sent.requests["getData"]) == (2, 2)
    assert is_fresh(observed)


def test_reading_writes_nothing(
    observer: ZookeeperBackend, other: ZookeeperBackend, proxy: FaultProxy, folder: str
) -> None:
    put(other, folder, a="1", b="2")
    with proxy.counting() as sent:
        assert len(observer.read(folder).result(BOUND).values) == 2
        assert len(observer.read(f"{folder}a").result(BOUND).values) == 1
    del sent.requests["ping"]
    asked = {"connect": 1, "sync": 3, "getChildren2": 1, "getData": 3}  # one opens the session
    assert sent.requests == asked


# Staleness


# Sessions


@pytest.mark.usefixtures("no_leaks")
def test_no_session_is_needed_and_none_is_opened_before_it_is_used(
    zookeeper: ZooKeeper, join: Join, root: str, folder: str
) -> None:
    with FaultProxy(zookeeper.host, zookeeper.port) as proxy:
        backend = join(f"zookeeper://127.0.0.1:{proxy.port}{root}")
        assert proxy.counts().connections == 0
        observed = backend.follow(Queue("q"), lambda: None)
        eventually(lambda: is_fresh(observed))
        assert backend.write([Put(f"{folder}a", b"1")]).result(BOUND).revision > 0
        assert proxy.counts().connections == 1
        backend.close().result(BOUND)
        eventually(lambda: observed.view.ended is not None)
        late = backend.follow(folder, lambda: None)
        eventually(lambda: late.view.ended is not None)
        for request in (backend.read(folder), backend.read(f"{folder}a"), backend.write([])):
            assert isinstance(request.exception(BOUND), BackendUnavailable)


@pytest.mark.usefixtures("no_leaks")
def test_a_given_client_carries_observations_within_its_chroot(
    zookeeper: ZooKeeper, parties: Parties, other: ZookeeperBackend, root: str, kazoo: Any
) -> None:
    kazoo.ensure_path(f"{root}/jail")
    with zookeeper.kazoo(hosts=f"{zookeeper.endpoint.hosts[0]}{root}/jail") as jailed:
        party = parties("zookeeper:///locks", jailed)
        backend = party.backend
        backend.write([Put("/data/a", b"1")]).result(BOUND)
        folder = follow(backend, "/data/")
        top = follow(backend, "/")
        queue = backend.follow(Queue("q"), lambda: None)
        entry, contender, _ = party.enqueue()
        eventually(lambda: [one.id for one in _contenders(queue)] == [contender.id])
        assert _contenders(queue)[0].key == contender.key == f"/locks/q/{_name(contender.key)}"
        put(other, f"{root}/jail/data/", a="2", b="3")
        eventually(lambda: values(folder) == {"a": b"2", "b": b"3"})
        assert set(values(top) or ()) == {"locks"}
        party.backend.withdraw([entry]).result(BOUND)
        eventually(lambda: _contenders(queue) == ())
        backend.close().result(BOUND)
        assert jailed.connected
        assert jailed.get("/data/a")[0] == b"2"


def test_observations_outlive_the_session_of_a_given_client(
    join: Join, other: ZookeeperBackend, proxy: FaultProxy, root: str, folder: str
) -> None:
    put(other, folder, a="1")
    own = KazooClient(f"127.0.0.1:{proxy.port}", timeout=1.0)
    own.start()
    try:
        backend = join(f"zookeeper://{root}", own)
        observed = follow(backend, folder)
        number = own.client_id[0]
        proxy.refuse()
        proxy.drop_connections()
        put(other, folder, a="2")
        eventually(lambda: is_stale(observed))
        threading.Event().wait(2.0)  # the session expires on the server
        proxy.heal()
        eventually(lambda: is_fresh(observed))
        assert values(observed) == {"a": b"2"}
        assert own.client_id[0] != number
        put(other, folder, a="3")
        eventually(lambda: values(observed) == {"a": b"3"})
    finally:
        own.stop()
        own.close()


def _contenders(observed: Observation[Any]) -> tuple[Any, ...]:
    return () if observed.view.state is None else observed.view.state.contenders


def _name(path: str) -> str:
    return path.rpartition("/")[2]


# Nodes


def test_nodes_without_data_are_no_keys(
    observer: ZookeeperBackend, other: ZookeeperBackend, folder: str, kazoo: Any
) -> None:
    put(other, f"{folder}parent/", below="1")
    kazoo.create(f"{folder}empty", b"")
    observed = follow(observer, folder)
    assert values(observed) == {"empty": b""}
    assert observer.read(f"{folder}parent").result(BOUND).values == {}
    with pytest.raises(VersionMismatch):
        other.write([Expect(f"{folder}empty", 0), Put(f"{folder}parent", b"")]).result(BOUND)
    other.write([Expect(f"{folder}parent", 0), Put(f"{folder}parent", b"2")]).result(BOUND)
    eventually(lambda: values(observed) == {"empty": b"", "parent": b"2"})
    other.write([Delete(f"{folder}parent")]).result(BOUND)
    eventually(lambda: values(observed) == {"empty": b""})
    below = other.read(f"{folder}parent/").result(BOUND)
    assert below.values == {f"{folder}parent/below": VersionedValue(b"1", 1)}


def test_a_node_that_may_not_be_read_ends_the_observation_of_its_folder(
    observer: ZookeeperBackend, other: ZookeeperBackend, folder: str, kazoo: Any
) -> None:
    put(other, folder, a="1")
    observed = follow(observer, folder)
    kazoo.create(f"{folder}secret", b"x", acl=[make_digest_acl("ann", "secret", all=True)])
    eventually(lambda: observed.view.ended is not None)
    assert isinstance(observed.view.ended, AuthenticationFailed)
    assert f"{folder}secret" in str(observed.view.ended)
    assert observed.view.stale_since is not None
    for where in (folder, f"{folder}secret"):
        with pytest.raises(AuthenticationFailed, match="secret"):
            observer.read(where).result(BOUND)
    kazoo.add_auth("digest", "ann:secret")
    kazoo.set_acls(f"{folder}secret", OPEN_ACL_UNSAFE)
    assert values(follow(observer, folder)) == {"a": b"1", "secret": b"x"}


# Servers


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


@pytest.mark.faults
def test_a_member_that_lags_is_in_doubt_since_before_and_reads_behind_a_sync(
    ensemble: ZooKeeperEnsemble, join: Join, root: str, folder: str
) -> None:
    leader = ensemble.leader()
    follower = next(member for member in ensemble.members if member is not leader)
    one = join(follower.url_for(root, ttl="6s"))
    two = join(leader.url_for(root, ttl="20s"))
    put(two, folder, a="1")
    observed = follow(one, folder)
    assert values(observed) == {"a": b"1"}
    follower.pause()
    try:
        paused = SYSTEM_CLOCK.now()
        put(two, folder, a="2")
        eventually(lambda: is_stale(observed), within=60)
        assert observed.view.stale_since is not None
        assert observed.view.stale_since <= paused
    finally:
        follower.resume()
    eventually(lambda: is_fresh(observed), within=60)
    assert values(observed) == {"a": b"2"}
    for number in range(20):
        put(two, folder, a=str(number))
        assert one.read(folder).result(BOUND).values[f"{folder}a"].data == b"%d" % number
