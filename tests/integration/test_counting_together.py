"""Counters, latches and barriers over the wire: answers are lost, and processes are killed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import coordlock
from coordlock import WaitTimeout
from coordlock.testing.connection import Connection
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.trap import Action
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.test_several_locks import BOUND, started

#: A party that says that it has passed.
PARTY = """
import sys, coordlock
client = coordlock.connect(sys.argv[1])
kind, parties = sys.argv[2], int(sys.argv[3])
if kind == "barrier":
    client.barrier("b", parties).wait(60)
else:
    client.double_barrier("b", parties).enter(60)
print("passed", flush=True)
sys.stdin.read()
"""

#: Adds to a counter until it is killed, and says which numbers it got.
ADDER = """
import sys, coordlock
client = coordlock.connect(sys.argv[1])
while True:
    print(client.counter("n").add(), flush=True)
"""


@pytest.fixture(params=["etcd", "zookeeper"])
def proxy(request: pytest.FixtureRequest, root: str) -> Iterator[tuple[FaultProxy, str, str]]:
    """A proxy, the URL through it, and the one past it."""
    server: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    framer = GrpcFrames if request.param == "etcd" else ZooKeeperFrames
    with FaultProxy(server.host, server.port, framer) as proxy:
        url = f"{request.param}://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=20s"
        yield proxy, url, server.url_for(root, ttl="60s")


def write_of(url: str) -> str:
    """The request by which data is written."""
    return "*Txn" if url.startswith("etcd") else "multi"


LOSSES = pytest.mark.parametrize("lose", [Connection.lose_reply, Connection.lose_request])


@LOSSES
def test_an_addition_whose_answer_is_lost_is_made_once(
    proxy: tuple[FaultProxy, str, str], lose: Action
) -> None:
    relay, url, direct = proxy
    with coordlock.connect(url) as client, coordlock.connect(direct) as other:
        assert client.counter("n").add() == 1
        trap = relay.on_request(write_of(url), lose, containing=b"@counters")
        assert client.counter("n").add() == 2
        trap.wait()
        assert other.counter("n").add() == 3
        trap = relay.on_request(write_of(url), lose, containing=b"@latches")
        assert client.latch("l", 2).count_down() == 1
        trap.wait()
        assert other.latch("l", 2).remaining() == 1


@LOSSES
def test_a_trip_whose_answer_is_lost_is_made_once(
    proxy: tuple[FaultProxy, str, str], lose: Action
) -> None:
    relay, url, direct = proxy
    with (
        coordlock.connect(url) as client,
        coordlock.connect(direct) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(other.barrier("b", 2).wait, BOUND)
        eventually(lambda: len(client.admin.contenders("b")) == 1)
        trap = relay.on_request(write_of(url), lose, containing=b"@barriers")
        client.barrier("b", 2).wait(BOUND)
        trap.wait()
        waiting.result(BOUND)
        with pytest.raises(WaitTimeout, match="1 of 2"):
            other.barrier("b", 2).wait(0)


def test_a_party_that_was_killed_does_not_count(shared_url: str) -> None:
    url = shared_url.replace("ttl=60", "ttl=2")
    with coordlock.connect(url) as client, ThreadPoolExecutor(1) as pool:
        with started(PARTY, url, "barrier", "3") as killed:
            eventually(lambda: len(client.admin.contenders("b")) == 1)
            waiting = pool.submit(client.barrier("b", 3).wait, BOUND)
            eventually(lambda: len(client.admin.contenders("b")) == 2)
            killed.kill()
            eventually(lambda: len(client.admin.contenders("b")) == 1)
        with started(PARTY, url, "barrier", "3") as first:
            eventually(lambda: len(client.admin.contenders("b")) == 2)
            assert not waiting.done()
            with started(PARTY, url, "barrier", "3") as second:
                for one in (first, second):
                    assert one.stdout
                    assert one.stdout.readline() == "passed\n"
                waiting.result(BOUND)


def test_a_party_that_was_killed_inside_has_left(shared_url: str) -> None:
    url = shared_url.replace("ttl=60", "ttl=2")
    with coordlock.connect(url) as client, started(PARTY, url, "double barrier", "2") as killed:
        barrier = client.double_barrier("b", 2)
        barrier.enter(BOUND)
        assert killed.stdout
        assert killed.stdout.readline() == "passed\n"
        killed.kill()
        barrier.leave(BOUND)
        assert client.admin.contenders("b") == ()


def test_clients_that_are_killed_while_they_add_give_no_number_twice(shared_url: str) -> None:
    numbers: list[int] = []
    with coordlock.connect(shared_url) as client:
        for _ in range(2):
            with started(ADDER, shared_url) as one, started(ADDER, shared_url) as two:
                for process in (one, two):
                    assert process.stdout
                    numbers += [int(process.stdout.readline()) for _ in range(5)]
                for process in (one, two):
                    process.kill()
                    assert process.stdout
                    lines = process.stdout.read().splitlines(keepends=True)
                    numbers += [int(line) for line in lines if line.endswith("\n")]
        assert len(set(numbers)) == len(numbers)
        # Each that was killed may have added once more, and not said so.
        assert len(numbers) <= client.counter("n").get() <= len(numbers) + 4
