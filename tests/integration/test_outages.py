"""What servers and their operators do to clients: clear errors within bounds, and nothing lost.

What networks do, and processes that die, is in the suite `FaultContract`, on every backend.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import coordlock
from coordlock.errors import TooLarge
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.etcd import Etcd, EtcdServer
from testbed.servers.zookeeper import ZooKeeper, ZooKeeperServer

pytestmark = pytest.mark.faults

Start = Callable[..., Future[Any]]
Server = EtcdServer | ZooKeeperServer

both = pytest.mark.parametrize("scheme", ["etcd", "zookeeper"])


@pytest.fixture
def start() -> Iterator[Start]:
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
    ],
)
def own_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server that the tests may stop, kill and pause; it runs when a test begins."""
    kind = {"etcd": EtcdServer, "zookeeper": ZooKeeperServer}[request.param]
    with kind(tmp_path_factory.mktemp("own")) as server:
        yield server


@pytest.fixture
def proxy(own_server: Server) -> Iterator[FaultProxy]:
    framer = GrpcFrames if isinstance(own_server, EtcdServer) else ZooKeeperFrames
    with FaultProxy(own_server.host, own_server.port, framer) as proxy:
        yield proxy


@pytest.fixture
def shared(request: pytest.FixtureRequest, scheme: str) -> Etcd | ZooKeeper:
    """The run's server, which nobody stops."""
    server: Etcd | ZooKeeper = request.getfixturevalue(scheme)
    return server


def through(proxy: FaultProxy, server: Server, root: str, options: str) -> str:
    return f"{server.endpoint.scheme}://127.0.0.1:{proxy.port}{root}?{options}"


def length(client: coordlock.Client, name: str = "orders") -> int:
    return len(client.admin.contenders(name))


def hold_and_wait(
    start: Start, holder: coordlock.Client, waiter: coordlock.Client
) -> tuple[coordlock.Grant, Future[coordlock.Grant]]:
    """One of them is granted the lock, and the other stands in the queue for it."""
    grant = holder.lock("orders").acquire()
    waiting = start(waiter.lock("orders").acquire)
    eventually(lambda: length(holder) == 2)
    return grant, waiting


@contextmanager
def silent(server: Server) -> Iterator[None]:
    """The server gives no answer."""
    server.pause()
    try:
        yield
    finally:
        server.resume()


# Restarts and outages


@pytest.mark.parametrize("how", ["restart", "kill and start"])
def test_holders_and_waiters_survive_a_server_that_comes_back_within_the_ttl(
    own_server: Server, root: str, how: str, start: Start
) -> None:
    with coordlock.connect(own_server.url_for(root, ttl="60s")) as client:
        holding, waiting = hold_and_wait(start, client, client)
        if how == "restart":
            own_server.restart()
        else:
            own_server.kill()
            own_server.start()
        eventually(lambda: holding.state is coordlock.GrantState.HELD)
        assert not waiting.done()
        assert holding.release()
        grant = waiting.result(60)
        assert grant.token > holding.token
        assert grant.release()


def test_a_client_that_only_looks_goes_on_after_its_session_has_ended(
    own_server: Server, root: str
) -> None:
    with (
        coordlock.connect(own_server.url_for(root, ttl="2s", request_timeout="1s")) as client,
        coordlock.connect(own_server.url_for(root, ttl="60s")) as other,
    ):
        grant = other.lock("orders").acquire()
        assert length(client) == 1
        with silent(own_server):
            time.sleep(4)  # until the server, too, finds the session expired

        def looks() -> bool:
            with suppress(coordlock.BackendUnavailable):
                return length(client) == 1
            return False

        eventually(looks)
        assert client.admin.names() == ["orders"]
        assert len(client.election("orders").candidates()) == 1
        assert client.admin.deadlocks() == ()
        assert grant.release()


class BlockingLog(logging.Handler):
    """As one that goes over the network may be, in the outage in which the lock is lost."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.is_reached, self.goes_on = threading.Event(), threading.Event()

    def emit(self, _: logging.LogRecord) -> None:
        self.is_reached.set()
        self.goes_on.wait()


@pytest.fixture
def blocking_log() -> Iterator[BlockingLog]:
    handler, logger = BlockingLog(), logging.getLogger("coordlock")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    handler.goes_on.set()


def test_a_log_that_blocks_keeps_no_loss_from_being_told_and_no_call_from_its_bound(
    own_server: Server, proxy: FaultProxy, root: str, blocking_log: BlockingLog, start: Start
) -> None:
    url = through(proxy, own_server, root, "ttl=3s&request_timeout=1s")
    with coordlock.connect(url) as client:
        told = threading.Event()
        grant = client.lock("orders").acquire()
        grant.on_lost(lambda _: told.set())
        proxy.black_hole()
        # Nobody else asks for anything: who does looks at the clock himself.
        assert told.wait(30)
        assert blocking_log.is_reached.wait(30)
        waiting = start(client.lock("orders").acquire, timeout=0.5)
        assert isinstance(waiting.exception(30), coordlock.errors.WaitUnavailable)
        assert not start(grant.release).result(30)
        start(client.close).result(30)


# Processes

FORKER = """
import os, sys, coordlock
client = coordlock.connect(sys.argv[1])
grant = client.lock("orders").acquire()
child = os.fork()
if child == 0:
    for use in (client.lock("other").acquire, client.admin.names, grant.check, grant.release):
        try:
            use()
        except coordlock.errors.ClientClosed:
            continue
        os._exit(1)
    with coordlock.connect(sys.argv[1]) as own:
        os._exit(0 if own.lock("orders").try_acquire() is None else 2)
assert os.waitpid(child, 0)[1] == 0
grant.check()
assert grant.release()
client.close()
"""


def script(code: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@both
def test_a_forked_child_is_refused_and_harms_nothing(
    scheme: str, shared: Etcd | ZooKeeper, root: str
) -> None:
    with script(FORKER, shared.url_for(root, ttl="60s")) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


# What only one of them can do


def test_the_parent_is_deleted_under_waiters(zookeeper: ZooKeeper, root: str, start: Start) -> None:
    with coordlock.connect(zookeeper.url_for(root, ttl="60s")) as client:
        holding, waiting = hold_and_wait(start, client, client)
        with zookeeper.kazoo() as kazoo:
            # At once: child by child, the waiter would be granted the lock for a moment.
            deletion = kazoo.transaction()
            for node in kazoo.get_children(f"{root}/orders"):
                deletion.delete(f"{root}/orders/{node}")
            deletion.delete(f"{root}/orders")
            assert deletion.commit() == [True] * 3
        assert holding.lost.wait(60)
        with pytest.raises(coordlock.errors.Evicted):
            waiting.result(60)
        # Its sequence starts again at 0; tokens go on growing.
        grant = client.lock("orders").acquire(60)
        assert grant.token > holding.token
        assert grant.release()


# Limits


def test_more_names_than_zookeeper_takes_in_one_step_are_refused_with_the_size(
    zookeeper: ZooKeeper, root: str
) -> None:
    names = [f"{'n' * 200}{number}" for number in range(3000)]
    with coordlock.connect(zookeeper.url_for(root)) as client:
        with pytest.raises(TooLarge, match="3000 locks in one step are too many"):
            client.multi_lock(names).acquire()
        with client.multi_lock(names[:500]) as grant:
            assert len(grant.parts) == 500
