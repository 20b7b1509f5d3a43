"""Reads and writes under a grant, over the wire: how many messages, and what faults do to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

import coordlock
from coordlock import LockLost
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from coordlock.types import VersionedValue
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper

KEEPING_ALIVE = {"ping", "sync", "LeaseKeepAlive", "Status"}


@dataclass
class Wire:
    """A service behind a proxy."""

    scheme: str
    proxy: FaultProxy
    url: str
    #: Past the proxy.
    direct: str

    @property
    def commit(self) -> str:
        """The request that commits."""
        return {"etcd": "Txn", "zookeeper": "multi"}[self.scheme]

    def requests(self, action: Callable[[], object]) -> Counter[str]:
        """The requests sent while ``action`` ran, but for heartbeats."""
        with self.proxy.counting() as sent:
            action()
        return Counter({k: n for k, n in sent.requests.items() if k not in KEEPING_ALIVE})


@pytest.fixture(params=["etcd", "zookeeper"])
def wire(request: pytest.FixtureRequest, root: str) -> Iterator[Wire]:
    server: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    framer = GrpcFrames if request.param == "etcd" else ZooKeeperFrames
    with FaultProxy(server.host, server.port, framer) as proxy:
        url = f"{request.param}://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=20s"
        yield Wire(request.param, proxy, url, server.url_for(root, ttl="60s"))


@pytest.fixture
def key(root: str) -> str:
    return f"{root}-data"


@pytest.fixture
def client(wire: Wire) -> Iterator[coordlock.Client]:
    with coordlock.connect(wire.url) as client:
        yield client


@pytest.fixture
def grant(wire: Wire, client: coordlock.Client, key: str) -> coordlock.Grant:
    """A grant under which the key was written once; its watch is set, and sends nothing more."""
    grant = client.lock("orders").acquire()
    grant.transaction().put(key, b"1").commit()
    watching = {"etcd": "Watch", "zookeeper": "getData"}[wire.scheme]
    eventually(lambda: wire.proxy.counts().replies[watching] > 0)
    return grant


# Messages


def test_a_commit_is_one_request_whatever_is_in_it(
    wire: Wire, grant: coordlock.Grant, key: str
) -> None:
    transaction = grant.transaction().put(key, b"2").expect(key, 1).expect(f"{key}-new", 0)
    assert wire.requests(transaction.put(f"{key}-new", b"1").commit) == {wire.commit: 1}
    delete = grant.transaction().delete(key).delete(f"{key}-new")
    assert wire.requests(delete.commit) == {wire.commit: 1}
    assert wire.requests(grant.transaction().commit) == {wire.commit: 1}


def test_a_read_is_one_round_trip(wire: Wire, grant: coordlock.Grant, key: str) -> None:
    expected = {"etcd": {"Txn": 1}, "zookeeper": {"getData": 1, "multi": 1}}[wire.scheme]
    assert wire.requests(lambda: grant.read(key)) == expected


def test_nothing_is_sent_for_a_lock_that_is_known_to_be_lost(
    wire: Wire, grant: coordlock.Grant, key: str
) -> None:
    with coordlock.connect(wire.direct) as other:
        other.admin.evict(other.admin.contenders("orders")[0])
    assert grant.lost.wait(30)

    def use() -> None:
        with pytest.raises(LockLost):
            grant.transaction().put(key, b"2").commit()
        with pytest.raises(LockLost):
            grant.read(key)

    requests = wire.requests(use)
    requests.pop("Watch", None)  # it is taken back, because of the loss
    assert requests == {}


# Faults


def test_a_commit_that_arrives_after_the_lock_has_passed_on_is_not_made(
    wire: Wire, grant: coordlock.Grant, key: str
) -> None:
    with coordlock.connect(wire.direct) as other, ThreadPoolExecutor() as pool:
        before = wire.proxy.counts().sent
        wire.proxy.requests.black_hole()
        late = pool.submit(grant.transaction().put(key, b"late").commit)
        eventually(lambda: wire.proxy.counts().sent > before)
        assert other.admin.evict(other.admin.contenders("orders")[0])
        with other.lock("orders", timeout=60) as newer:
            assert newer.read(key) == VersionedValue(b"1", 1)
            newer.transaction().put(key, b"newer").commit()
            wire.proxy.heal()
            with pytest.raises(LockLost):
                late.result(60)
            assert newer.read(key) == VersionedValue(b"newer", 2)
