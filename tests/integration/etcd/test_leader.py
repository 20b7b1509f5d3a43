"""The leader dies, and takes along what its members had handed over to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import grpc
import pytest
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.rpc import TXN

import coordlock
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import EtcdCluster, EtcdServer

#: Longer than etcd itself waits for what is lost: five seconds and two elections.
REQUEST_TIMEOUT = 60
#: Seconds after the cluster could be written to within which all is done: sooner than etcd gives up
#: what is lost. It takes two, unless the machine stands still.
SOON = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture
def leader(cluster: EtcdCluster) -> Iterator[EtcdServer]:
    """It leads when the test begins, and the test kills it."""
    leader = cluster.leader()
    yield leader
    leader.kill()  # where the test came to no such end
    leader.start()
    eventually(lambda: all(member.answers() for member in cluster.members), within=60)


@pytest.fixture(params=["a follower", "the leader"])
def url(request: pytest.FixtureRequest, cluster: EtcdCluster, leader: EtcdServer, root: str) -> str:
    """Whose clients use first what the test's parameter says."""
    first = request.param == "the leader"
    hosts = sorted(cluster.members, key=lambda member: (member is leader) is not first)
    addresses = ",".join(member.endpoint.hosts[0] for member in hosts)
    return f"etcd://{addresses}{root}?ttl=60s&request_timeout={REQUEST_TIMEOUT}s"


def moment_of(action: Callable[[], object]) -> float:
    """When ``action`` has succeeded."""
    action()
    return time.monotonic()


def written(member: EtcdServer) -> None:
    """Write through ``member``, as a client does that gives each attempt a tenth of a second."""
    request = pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"/raw"))])
    with grpc.insecure_channel(member.endpoint.hosts[0]) as channel:
        write = channel.unary_unary(TXN.path, TXN.encode, TXN.decode)

        def succeeds() -> bool:
            try:
                write(request, timeout=0.1)
            except grpc.RpcError:
                return False
            return True

        eventually(succeeds, within=60)


def follower(cluster: EtcdCluster, leader: EtcdServer) -> EtcdServer:
    return next(member for member in cluster.members if member is not leader)


@pytest.mark.long  # it measures seconds, which a machine that stands still takes, too
def test_what_was_asked_as_the_leader_died_is_done_soon_after_there_is_another(
    cluster: EtcdCluster,
    leader: EtcdServer,
    url: str,
    pool: ThreadPoolExecutor,
) -> None:
    with (
        coordlock.connect(url) as holder,
        coordlock.connect(url) as waiter,
        coordlock.connect(url) as third,
    ):
        holding = holder.lock("orders").acquire()
        handoff = pool.submit(moment_of, lambda: waiter.lock("orders").acquire())
        eventually(lambda: len(third.admin.contenders("orders")) == 2)
        leader.kill()
        killed = time.monotonic()

        async def in_a_task() -> None:
            async with coordlock.connect_async(url) as client, client.lock("bills"):
                pass

        moments: dict[str, Future[float]] = {
            "release": pool.submit(moment_of, lambda: holding.release(REQUEST_TIMEOUT)),
            "acquire": pool.submit(moment_of, lambda: third.lock("stock").acquire()),
            "list": pool.submit(moment_of, lambda: third.admin.contenders("stock")),
            "asyncio": pool.submit(moment_of, lambda: asyncio.run(in_a_task())),
            "handoff": handoff,
        }
        writable = pool.submit(moment_of, lambda: written(follower(cluster, leader))).result(90)
        late = {what: one.result(90) - writable for what, one in moments.items()}
        took = ", ".join(f"{what} {seconds:+.2f}" for what, seconds in late.items())
        print(f"writable after {writable - killed:.2f} s; {took}")
        assert max(late.values()) < SOON
        assert holding.state is coordlock.GrantState.RELEASED
