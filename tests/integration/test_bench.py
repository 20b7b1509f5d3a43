"""The benchmark's crowd, its counts, its failovers and its groups, on real services."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

import coordlock
from bench.contestants.our_group import EtcdGroup, ZooKeeperGroup
from bench.crowd import Crowd
from bench.failover import CANDIDATES, Pair
from bench.http_frames import HttpFrames
from bench.services import Service, is_heartbeat
from coordlock.testing.frames import Framer
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.endpoint import Endpoint
from testbed.servers.etcd import Etcd

FRAMERS: dict[str, Callable[[], Framer]] = {"etcd": GrpcFrames, "zookeeper": ZooKeeperFrames}
WAITERS = 25


@pytest.fixture(params=FRAMERS)
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    found: Endpoint = request.getfixturevalue(request.param).endpoint
    return found


@pytest.fixture
def proxy(endpoint: Endpoint) -> Iterator[FaultProxy]:
    host, _, port = endpoint.hosts[0].rpartition(":")
    with FaultProxy(host, int(port), FRAMERS[endpoint.scheme]) as started:
        yield started


@pytest.fixture
def crowd(endpoint: Endpoint, proxy: FaultProxy, root: str) -> Iterator[Crowd]:
    crowd = Crowd(f"{endpoint.scheme}://{proxy.host}:{proxy.port}{root}?ttl=30s")
    yield crowd
    crowd.close()


def test_who_lines_up_stands_in_the_queue_and_nothing_is_asked_for_that(
    endpoint: Endpoint, proxy: FaultProxy, crowd: Crowd, root: str
) -> None:
    with coordlock.connect(endpoint.url(root)) as elsewhere:
        grant = elsewhere.lock("long").acquire()
        proxy.delay(0.1)  # so that who returns early is found out
        with proxy.counting() as sent:
            crowd.line_up("long", WAITERS, settle=0.0, at_once=10)
        assert len(elsewhere.admin.contenders("long")) == WAITERS + 1
        proxy.heal()
        kinds = {kind: n for kind, n in sent.requests.items() if not is_heartbeat(kind)}
        if endpoint.scheme == "etcd":
            # Each watches itself, and who stands before it; the client that comes first to a short
            # queue watches that, and reads once.
            assert kinds.pop("Watch") <= 3 * WAITERS
            assert kinds in ({"Txn": WAITERS}, {"Txn": WAITERS + 1})
        else:
            assert "create" in "".join(kinds)
            # A list for each at most, which it asks for when it comes.
            assert kinds["getChildren2"] <= WAITERS
        grant.release()
        found = crowd.drain()
    assert found["resumed"] >= 1


def test_a_waiter_that_is_refused_is_reported(endpoint: Endpoint, crowd: Crowd, root: str) -> None:
    def come_and_go() -> None:
        crowd.line_up("long", 3, settle=0.0, at_once=3)
        crowd.drain()  # they may have stood there for a moment

    with (
        coordlock.connect(endpoint.url(root)) as elsewhere,
        elsewhere.semaphore("long", 2),
        pytest.raises(coordlock.NameConflict),
    ):
        come_and_go()


def test_calls_of_a_real_gateway_are_counted(etcd: Etcd) -> None:
    with FaultProxy(etcd.host, etcd.port, HttpFrames) as proxy, proxy.counting() as sent:
        connection = HTTPConnection(proxy.host, proxy.port, timeout=30)
        for _ in range(3):
            # More than a few kilobytes come in chunks.
            connection.request(
                "POST", "/v3/kv/put", json.dumps({"key": "YQ==", "value": "YWFh" * 2000})
            )
            connection.getresponse().read()
            connection.request("POST", "/v3/kv/range", json.dumps({"key": "YQ=="}))
            assert len(json.loads(connection.getresponse().read())["kvs"]) == 1
        connection.request("POST", "/v3/kv/deleterange", json.dumps({"key": "YQ=="}))
        connection.getresponse().read()
        connection.close()
    expected = {"put": 3, "range": 3, "deleterange": 1}
    assert sent.requests == expected
    assert sent.replies == expected


def test_a_killed_leader_is_followed_and_replaced_in_each_round(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    [entrant] = [one for one in CANDIDATES if one.service == "local"]
    pair = Pair(entrant, Service("local", str(tmp_path)), "/bench")
    try:
        for _ in range(2):
            failover = pair.failover()
            assert min(failover.removed, failover.led, failover.handoff) > 0
    finally:
        pair.stop()


def test_all_members_of_a_storm_are_counted(endpoint: Endpoint, root: str) -> None:
    kind = EtcdGroup if endpoint.scheme == "etcd" else ZooKeeperGroup
    with closing(kind(endpoint.hosts[0], root)) as group:
        group.gather(members=5)
        for name in ("one", "two"):
            assert min(group.storm(name, threads=2)) > 0
        with coordlock.connect(endpoint.url(root)) as client:
            assert client.group("one").members() == ()
