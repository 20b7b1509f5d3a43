"""Values over the wire: what is sent, answers that are lost, and what the services do not take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import coordlock
from coordlock import BackendError, BackendUnavailable
from coordlock.errors import InvalidName
from coordlock.testing.connection import Connection
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.trap import Action
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from coordlock.types import VersionedValue
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper

BOUND = 60.0


@pytest.fixture(params=["etcd", "zookeeper"])
def proxy(request: pytest.FixtureRequest, root: str) -> Iterator[tuple[FaultProxy, str]]:
    server: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    framer = GrpcFrames if request.param == "etcd" else ZooKeeperFrames
    with FaultProxy(server.host, server.port, framer) as proxy:
        yield proxy, f"{request.param}://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=20s"


@pytest.fixture
def client(proxy: tuple[FaultProxy, str]) -> Iterator[coordlock.Client]:
    with coordlock.connect(proxy[1]) as client:
        yield client


@pytest.fixture
def folder(root: str) -> str:
    return f"{root}-data"


@pytest.mark.parametrize("lose", [Connection.lose_reply, Connection.lose_request])
def test_a_write_whose_answer_is_lost_is_sent_once(
    proxy: tuple[FaultProxy, str], client: coordlock.Client, folder: str, lose: Action
) -> None:
    relay, url = proxy
    write = "*Txn" if url.startswith("etcd") else "multi"
    value = client.value(f"{folder}/key")
    value.set(b"first")
    trap = relay.on_request(write, lose, containing=b"second")
    with pytest.raises(BackendUnavailable, match="may have been made, or may be yet"):
        value.update(lambda _: b"second")
    trap.wait()
    made = lose is Connection.lose_reply
    assert value.get() == (VersionedValue(b"second", 2) if made else VersionedValue(b"first", 1))


def test_what_the_service_does_not_take_is_refused_and_the_client_goes_on(
    client: coordlock.Client, folder: str
) -> None:
    value = client.value(f"{folder}/key")
    value.set(b"small")
    with pytest.raises(BackendError) as caught:
        value.set(b"x" * 10_000_000)
    assert not isinstance(caught.value, BackendUnavailable)
    assert value.get() == VersionedValue(b"small", 1)


def test_no_value_lies_among_the_locks(client: coordlock.Client, root: str) -> None:
    for key in (root, f"{root}/lock", f"{root}/@counters/x"):
        with pytest.raises(InvalidName, match="every key is a contender"):
            client.value(key)


def test_an_observer_says_since_when_it_is_stale_and_is_up_to_date_again_by_itself(
    proxy: tuple[FaultProxy, str], client: coordlock.Client, folder: str
) -> None:
    relay, url = proxy
    with coordlock.connect(url) as follower, follower.values(folder).observe() as views:
        client.value(f"{folder}/a").set(b"1")
        eventually(lambda: views.next(BOUND).values == {f"{folder}/a": VersionedValue(b"1", 1)})
        eventually(lambda: views.stale_for is None)
        relay.refuse()
        relay.drop_connections()
        eventually(lambda: views.stale_for is not None)
        assert views.state.values == {f"{folder}/a": VersionedValue(b"1", 1)}
        relay.heal()
        assert len(client.values(folder).get()) == 1  # repeated until the connection is back
        client.transaction().delete(f"{folder}/a").put(f"{folder}/b", b"2").commit()
        view = views.next(BOUND)
        assert view.values == view.added == {f"{folder}/b": VersionedValue(b"2", 1)}
        assert view.removed == {f"{folder}/a": VersionedValue(b"1", 1)}
        eventually(lambda: views.stale_for is None)
