"""The value of a lock when its holder is killed, and when answers are lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import coordlock
from coordlock import BackendUnavailable, WaitCancelled
from coordlock.errors import WaitUnavailable
from coordlock.testing.connection import Connection
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.trap import Action, Trap
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.test_several_locks import BOUND, started

#: Holds the lock, in the mode that its second argument names, and has set the value.
HOLDER = """
import sys, coordlock
client = coordlock.connect(sys.argv[1])
mode = coordlock.Mode[sys.argv[2]]
grant = client.value_lock("imports", mode=mode).acquire()
grant.value = b"unfinished"
print(grant.value, flush=True)
sys.stdin.read()
"""


def kept(client: coordlock.Client) -> coordlock.types.ValueLock:
    """The lock, with its value."""
    return client.value_lock("imports", timeout=BOUND)


@pytest.mark.parametrize("mode", ["EX", "PW"])
def test_after_a_holder_that_was_killed_there_is_no_value(shared_url: str, mode: str) -> None:
    url = shared_url.replace("ttl=60", "ttl=2")
    with coordlock.connect(url) as client:
        with kept(client) as grant:
            grant.value = b"old"
        with started(HOLDER, url, mode) as holder:
            assert holder.stdout
            assert holder.stdout.readline() == "b'unfinished'\n"
            holder.kill()
            with kept(client) as grant:
                assert grant.value is None
                grant.value = b"new"
        with kept(client) as grant:
            assert grant.value == b"new"
        assert client.contenders("imports") == ()


@pytest.fixture(params=["etcd", "zookeeper"])
def proxy(request: pytest.FixtureRequest, root: str) -> Iterator[tuple[FaultProxy, str]]:
    server: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    framer = GrpcFrames if request.param == "etcd" else ZooKeeperFrames
    with FaultProxy(server.host, server.port, framer) as proxy:
        yield proxy, f"{request.param}://127.0.0.1:{proxy.port}{root}?ttl=60s"


def writes(grant: coordlock.types.ValueGrant) -> int:
    """How often the record of the value was written, as the service told this holder."""
    assert grant._kept is not None
    return grant._kept._record._version


@pytest.mark.parametrize("lose", [Connection.lose_reply, Connection.lose_request])
@pytest.mark.parametrize("when", ["open", "close"])
def test_a_write_whose_answer_is_lost_is_made_once(
    proxy: tuple[FaultProxy, str], when: str, lose: Action
) -> None:
    relay, url = proxy
    write = "*Txn" if url.startswith("etcd") else "multi"
    with coordlock.connect(url) as client, coordlock.connect(url) as other:
        with kept(client) as grant:
            grant.value = b"one"
        with kept(other) as grant:
            assert grant.value == b"one"
            assert writes(grant) == 3  # opened, closed, opened
        nth = ["open", "close"].index(when) + 1
        if url.startswith("etcd"):
            nth += 2  # a transaction enters, and one reads
        trap = relay.on_request(write, lose, nth=nth)
        with kept(client) as grant:
            assert grant.value == b"one"
            grant.value = b"two"
        assert trap.sprung
        with kept(other) as grant:
            assert grant.value == b"two"
            assert writes(grant) == 7


def silenced(relay: FaultProxy, url: str) -> Trap:
    """Have the service fall silent to whom asks for the value."""
    if url.startswith("etcd"):
        return relay.on_request("*Txn", Connection.black_hole, nth=2)
    return relay.on_request("getData", Connection.black_hole)


def test_a_wait_for_the_value_ends_with_the_time_of_the_acquire(
    proxy: tuple[FaultProxy, str],
) -> None:
    relay, url = proxy
    with coordlock.connect(url) as client, coordlock.connect(url) as other:
        trap = silenced(relay, url)
        with pytest.raises(WaitUnavailable, match="was not granted within"):
            kept(client).acquire(timeout=1)
        assert trap.sprung
        relay.heal()
        eventually(lambda: not other.contenders("imports"))
        trap = silenced(relay, url)
        with pytest.raises(WaitUnavailable):
            client.value_lock("imports").try_acquire()
        assert trap.sprung
        relay.heal()
        eventually(lambda: not other.contenders("imports"))


def test_a_wait_for_the_value_is_cancelled_like_that_for_the_lock(
    proxy: tuple[FaultProxy, str],
) -> None:
    relay, url = proxy
    enough = coordlock.Cancellation()
    with coordlock.connect(url) as client, coordlock.connect(url) as other:
        trap = silenced(relay, url)
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(kept(client).acquire, cancellation=enough)
            trap.wait()
            enough.cancel("enough")
            with pytest.raises(WaitCancelled, match="enough"):
                call.result(BOUND)
        relay.heal()
        eventually(lambda: not other.contenders("imports"))
        with kept(other) as grant:
            assert grant.value is None


def test_a_value_that_cannot_be_written_hides_no_error_of_the_block(
    proxy: tuple[FaultProxy, str],
) -> None:
    relay, url = proxy
    write = "*Txn" if url.startswith("etcd") else "multi"
    short = f"{url}&request_timeout=1s"
    with coordlock.connect(short) as client, coordlock.connect(url) as other:

        def fail() -> None:
            with kept(client) as grant:
                grant.value = b"so far"
                relay.on_request(write, Connection.black_hole)
                _ = 1 // 0

        with pytest.raises(ZeroDivisionError) as caught:
            fail()
        assert isinstance(caught.value.__context__, BackendUnavailable)
        assert "may not be written" in str(caught.value.__context__)
        relay.heal()
        with kept(other) as grant:
            assert grant.value in (None, b"so far")
            assert grant.token
        with pytest.raises(BackendUnavailable, match="may not be written"), kept(client):
            relay.on_request(write, Connection.black_hole)
        relay.heal()
