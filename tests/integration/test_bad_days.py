"""What goes wrong in production, on real servers: clear errors within bounds, and nothing lost."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

import coordlock
from coordlock.runtime.clock import SystemTimers
from coordlock.testing.connection import Connection
from coordlock.testing.counts import Counts
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


@pytest.fixture(scope="module", params=["etcd", "zookeeper"])
def own_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server that the tests may stop, kill and pause; it runs when a test begins."""
    request.getfixturevalue(request.param)  # so that --without leaves it out
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


@contextmanager
def bounded() -> Iterator[None]:
    """What happens within takes some seconds at most, though no server answers."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < 20


# Connecting


@pytest.fixture(params=["nothing listens", "silence", "another protocol"])
def wrong_port(request: pytest.FixtureRequest, scheme: str) -> Iterator[int]:
    """A port of this machine where no server of that scheme answers."""
    if request.param == "another protocol":
        other = {"etcd": "zookeeper", "zookeeper": "etcd"}[scheme]
        server: Etcd | ZooKeeper = request.getfixturevalue(other)
        yield server.port
        return
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        if request.param == "nothing listens":
            listener.close()
        yield port


@both
def test_a_port_without_a_server_is_an_error_within_the_timeout(
    scheme: str, wrong_port: int
) -> None:
    with bounded(), pytest.raises(coordlock.BackendUnavailable) as caught:
        coordlock.connect(f"{scheme}://127.0.0.1:{wrong_port}", connect_timeout=1)
    assert str(wrong_port) in str(caught.value)


@both
def test_a_host_that_does_not_exist_is_an_error_within_the_timeout(scheme: str) -> None:
    with pytest.raises(coordlock.BackendUnavailable, match=r"nowhere\.invalid"):
        coordlock.connect(f"{scheme}://nowhere.invalid", connect_timeout=1)


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


def test_an_outage_longer_than_the_ttl_loses_the_lock_at_the_local_deadline(
    own_server: Server, root: str, start: Start
) -> None:
    with coordlock.connect(own_server.url_for(root, ttl="2s", request_timeout="2s")) as client:
        holding, waiting = hold_and_wait(start, client, client)
        with silent(own_server):
            paused = time.monotonic()
            deadline = paused + holding.remaining()
            assert holding.lost.wait(30)
            assert holding.state is coordlock.GrantState.LOST
            # An acknowledgement that was on its way when the server stopped may have renewed it.
            assert time.monotonic() < deadline + 2 + 5
            with pytest.raises(coordlock.SessionLost):
                waiting.result(30)
            with pytest.raises(coordlock.LockLost):
                holding.check()
            with pytest.raises(coordlock.BackendUnavailable):
                client.lock("orders").try_acquire()
            with pytest.raises(coordlock.errors.WaitUnavailable):
                client.lock("orders").acquire(timeout=0.3)
        # The same client goes on with a new session.
        grant = client.lock("orders").acquire(timeout=60)
        assert grant.token > holding.token
        assert holding.release() is False
        assert holding.state is coordlock.GrantState.LOST
        assert grant.release()
        eventually(lambda: length(client) == 0)


def test_a_client_that_only_looks_goes_on_after_its_session_has_ended(
    own_server: Server, root: str
) -> None:
    with (
        coordlock.connect(own_server.url_for(root, ttl="4s", request_timeout="2s")) as client,
        coordlock.connect(own_server.url_for(root, ttl="60s")) as other,
    ):
        grant = other.lock("orders").acquire()
        assert length(client) == 1
        with silent(own_server):
            time.sleep(8)  # until the server, too, finds the session expired

        def looks() -> bool:
            with suppress(coordlock.BackendUnavailable):
                return length(client) == 1
            return False

        eventually(looks)
        assert client.admin.names() == ["orders"]
        assert len(client.election("orders").candidates()) == 1
        assert client.admin.deadlocks() == ()
        assert grant.release()


def test_a_release_is_bounded_while_the_server_is_silent_and_is_made_up_for(
    own_server: Server, root: str
) -> None:
    with coordlock.connect(own_server.url_for(root, ttl="60s", request_timeout="1s")) as client:
        grant = client.lock("orders").acquire()
        with silent(own_server), bounded():
            assert grant.release()
        with coordlock.connect(own_server.url_for(root)) as other:
            assert other.lock("orders").acquire(60).release()


def test_a_release_during_an_outage_is_made_up_for_when_the_session_has_recovered(
    own_server: Server, proxy: FaultProxy, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        coordlock.connect(own_server.url_for(root)) as other,
        coordlock.connect(through(proxy, own_server, root, "ttl=60s")) as client,
    ):
        grant = client.lock("orders").acquire()
        held = client.lock("other").acquire()
        # No attempt is made but for a reason.
        monkeypatch.setattr(SystemTimers, "jitter", lambda *_: 300.0)
        monkeypatch.setattr(client._engine.tickets, "_pause", 300)
        proxy.refuse()
        proxy.drop_connections()
        assert grant.release(timeout=0.5)
        eventually(lambda: held.state is coordlock.GrantState.SUSPECT)
        proxy.heal()
        eventually(lambda: length(other) == 0)
        assert held.release()


def test_a_lock_that_is_lost_only_here_is_given_up_without_a_release(
    own_server: Server, proxy: FaultProxy, root: str, start: Start
) -> None:
    with (
        coordlock.connect(through(proxy, own_server, root, "ttl=3s&request_timeout=1s")) as client,
        coordlock.connect(own_server.url_for(root)) as other,
    ):
        grant, waiting = hold_and_wait(start, client, other)
        session = other.admin.contenders("orders")[0].session
        # The fault: what the client sends arrives, so its session lives; no answer does.
        proxy.replies.black_hole()

        def lost() -> bool:
            if isinstance(own_server, EtcdServer):
                # Heartbeats end with the client's belief, and the session soon after.
                own_server.etcdctl("lease", "keep-alive", "--once", session)
            return grant.lost.is_set()

        eventually(lost)
        proxy.drop_connections()
        proxy.heal()
        eventually(lambda: lost() and waiting.done())
        if isinstance(own_server, EtcdServer):
            assert session in own_server.etcdctl("lease", "list")
        assert waiting.result().release()


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


def test_a_log_that_blocks_keeps_no_eviction_from_being_told(
    own_server: Server, proxy: FaultProxy, root: str, blocking_log: BlockingLog
) -> None:
    with (
        coordlock.connect(own_server.url_for(root)) as admin,
        coordlock.connect(through(proxy, own_server, root, "ttl=30s")) as client,
    ):
        told = threading.Event()
        grant = client.lock("orders").acquire()
        grant.on_lost(lambda _: told.set())
        eventually(lambda: watches(proxy, Counts(), 1))
        proxy.drop_connections()
        assert blocking_log.is_reached.wait(30), "a warning that the session is in doubt"
        [contender] = admin.admin.contenders("orders")
        assert admin.admin.evict(contender)
        assert told.wait(30)


def test_closing_is_bounded_while_the_server_is_silent(own_server: Server, root: str) -> None:
    client = coordlock.connect(own_server.url_for(root, ttl="2s", request_timeout="1s"))
    client.lock("orders").acquire()
    with silent(own_server), bounded():
        client.close()


# Lost messages


def create_kind(server: Server) -> str:
    return "Txn" if isinstance(server, EtcdServer) else "create2"


def test_a_create_whose_reply_was_lost_makes_one_contender(
    own_server: Server, proxy: FaultProxy, root: str
) -> None:
    with (
        coordlock.connect(through(proxy, own_server, root, "ttl=60s")) as client,
        coordlock.connect(own_server.url_for(root)) as observer,
    ):
        client.lock("warm").acquire().release()
        trap = proxy.on_request(create_kind(own_server), Connection.lose_reply)
        grant = client.lock("orders").acquire(timeout=60)
        assert trap.sprung
        assert [one.token for one in observer.admin.contenders("orders")] == [grant.token]
        assert grant.release()
        assert length(observer) == 0


def test_a_waiter_that_gave_up_on_a_lost_reply_leaves_no_contender(
    own_server: Server, proxy: FaultProxy, root: str
) -> None:
    with (
        coordlock.connect(through(proxy, own_server, root, "ttl=60s")) as client,
        coordlock.connect(own_server.url_for(root)) as observer,
    ):
        client.lock("warm").acquire().release()
        proxy.replies.black_hole()
        with pytest.raises(coordlock.errors.WaitUnavailable, match="is unavailable"):
            client.lock("orders").acquire(timeout=1)
        eventually(lambda: length(observer) == 1, "the create has arrived")
        proxy.drop_connections()
        proxy.heal()
        eventually(lambda: length(observer) == 0)


def test_a_create_that_takes_effect_after_the_withdrawal_is_removed(
    own_server: Server, proxy: FaultProxy, root: str
) -> None:
    with (
        coordlock.connect(through(proxy, own_server, root, "ttl=60s&request_timeout=1s")) as client,
        coordlock.connect(own_server.url_for(root)) as observer,
    ):
        client.lock("warm").acquire().release()
        trap = proxy.on_request(create_kind(own_server), Connection.postpone_request)
        proxy.refuse()
        with pytest.raises(coordlock.errors.WaitUnavailable):
            client.lock("orders").acquire(timeout=1)
        assert trap.sprung
        proxy.heal()  # now it arrives
        assert client.lock("other").acquire(60).release()
        eventually(lambda: length(observer) == 0)
        # Whether it came before the removal or after it, it is gone for good.
        assert observer.lock("orders").acquire(30).release()


def test_a_release_whose_reply_was_lost_is_a_release(
    own_server: Server, proxy: FaultProxy, root: str
) -> None:
    kind = "Txn" if isinstance(own_server, EtcdServer) else "delete"
    with (
        coordlock.connect(through(proxy, own_server, root, "ttl=60s")) as client,
        coordlock.connect(own_server.url_for(root)) as observer,
    ):
        grant = client.lock("orders").acquire()
        trap = proxy.on_request(kind, Connection.lose_reply)
        grant.release()
        assert trap.sprung
        eventually(lambda: length(observer) == 0)


def test_a_waiter_sees_a_departure_that_happened_while_it_was_cut_off(
    own_server: Server, proxy: FaultProxy, root: str, start: Start
) -> None:
    with (
        coordlock.connect(through(proxy, own_server, root, "ttl=60s")) as client,
        coordlock.connect(own_server.url_for(root)) as other,
    ):
        holding, waiting = hold_and_wait(start, other, client)
        proxy.refuse()
        proxy.drop_connections()
        assert holding.release()
        assert not waiting.done()
        proxy.heal()
        assert waiting.result(60).release()


def test_a_waiter_that_was_evicted_while_it_was_cut_off_is_not_granted(
    own_server: Server, proxy: FaultProxy, root: str, start: Start
) -> None:
    with coordlock.connect(own_server.url_for(root)) as other:
        for _ in range(5):
            before = proxy.counts()
            with coordlock.connect(through(proxy, own_server, root, "ttl=60s")) as client:
                holding = other.lock("orders").acquire()
                waiting = [start(client.lock("orders").acquire)]
                # Its own contender and the holder's; on etcd the queue.
                first = 1 if own_server.url.startswith("etcd") else 2
                eventually(partial(watches, proxy, before, first))
                # Watches the holder's departure for the first one too, when it asks again.
                waiting.append(start(client.read_lock("orders").acquire))
                if first == 2:
                    eventually(
                        partial(watches, proxy, before, 3), "its own: it knows that it stands"
                    )
                eventually(lambda: len(other.admin.contenders("orders")) == 3)
                proxy.refuse()
                proxy.drop_connections()
                assert other.admin.evict(other.admin.contenders("orders")[2])
                assert other.admin.evict(other.admin.contenders("orders")[1])
                assert holding.release()
                proxy.heal()
                for one in waiting:
                    with pytest.raises(coordlock.errors.Evicted):
                        one.result(60)


def watches(proxy: FaultProxy, before: Counts, count: int) -> bool:
    requests = (proxy.counts() - before).requests
    return requests["Watch"] + requests["getData"] >= count


def test_a_waiter_that_was_evicted_before_it_knew_that_it_stood_stands_anew_behind_all(
    own_server: Server, proxy: FaultProxy, root: str, start: Start
) -> None:
    """Its entry cannot be told from one that has never arrived; its place and token are lost."""
    with (
        coordlock.connect(through(proxy, own_server, root, "ttl=60s")) as client,
        coordlock.connect(own_server.url_for(root)) as other,
    ):
        client.lock("warm").acquire().release()
        proxy.replies.black_hole()
        waiting = start(client.lock("orders").acquire)
        eventually(lambda: length(other) == 1, "the create has arrived")
        [first] = other.admin.contenders("orders")
        assert other.admin.evict(first)
        holding = other.lock("orders").acquire()
        proxy.drop_connections()
        proxy.heal()
        eventually(lambda: length(other) == 2)
        assert not waiting.done()
        assert holding.release()
        grant = waiting.result(60)
        assert first.token is not None
        assert grant.token > holding.token > first.token
        assert grant.release()


def test_a_partitioned_holder_stops_before_the_next_one_starts(
    own_server: Server, proxy: FaultProxy, root: str, start: Start
) -> None:
    with (
        coordlock.connect(through(proxy, own_server, root, "ttl=3s&request_timeout=2s")) as client,
        coordlock.connect(own_server.url_for(root)) as other,
    ):
        holding, waiting = hold_and_wait(start, client, other)
        lost_at: list[float] = []
        holding.on_lost(lambda _: lost_at.append(time.monotonic()))
        proxy.black_hole()
        grant = waiting.result(120)
        granted_at = time.monotonic()
        assert holding.state is coordlock.GrantState.LOST
        eventually(lambda: lost_at)
        # The callback's thread may be late on a loaded machine; the deadline itself is not.
        assert lost_at[0] < granted_at + 1
        assert grant.token > holding.token
        proxy.drop_connections()
        proxy.heal()
        assert grant.release()


# Operators


def test_an_operator_deletes_the_contender_in_the_service(own_server: Server, root: str) -> None:
    with coordlock.connect(own_server.url_for(root, ttl="60s")) as client:
        grant = client.lock("orders").acquire()
        [standing] = client.admin.contenders("orders")
        if isinstance(own_server, EtcdServer):
            own_server.etcdctl("del", standing.contender.key)
        else:
            with own_server.kazoo() as kazoo:
                [node] = kazoo.get_children(f"{root}/orders")
                kazoo.delete(f"{root}/orders/{node}")
        assert grant.lost.wait(30)
        with pytest.raises(coordlock.LockLost, match="removed"):
            grant.check()
        assert client.lock("orders").acquire(30).token > grant.token


def test_an_operator_revokes_the_lease_under_holder_and_waiter(
    etcd: Etcd, root: str, start: Start
) -> None:
    with coordlock.connect(etcd.url_for(root, ttl="60s")) as client:
        lose_the_session(client, start, lambda session: etcd.etcdctl("lease", "revoke", session))


def test_an_operator_ends_the_session_under_holder_and_waiter(
    zookeeper: ZooKeeper, root: str, start: Start
) -> None:
    def end(session: str) -> None:
        # Whoever knows a session's id and password may close it.
        with zookeeper.kazoo(client_id=kazoo.client_id):
            pass

    with zookeeper.kazoo(timeout=60) as kazoo, coordlock.connect(client=kazoo, root=root) as client:
        lose_the_session(client, start, end)


def lose_the_session(client: coordlock.Client, start: Start, end: Callable[[str], object]) -> None:
    """Hold and wait, end the session, and see that both are told."""
    grant, waiting = hold_and_wait(start, client, client)
    sessions = {standing.session for standing in client.admin.contenders("orders")}
    end(next(iter(sessions)))
    assert grant.lost.wait(60)
    with pytest.raises(coordlock.SessionLost):
        waiting.result(60)
    assert client.lock("orders").acquire(60).token > grant.token


# Processes

WAITER = """
import sys, coordlock
client = coordlock.connect(sys.argv[1])
print("connected", flush=True)
client.lock("orders").acquire()
"""

PAUSED = """
import sys, coordlock
with coordlock.connect(sys.argv[1]) as client:
    grant = client.lock("orders").acquire()
    print(grant.token, flush=True)
    sys.stdin.readline()
    try:
        grant.check()
    except coordlock.LockLost as lost:
        print("lost:", lost, flush=True)
    else:
        print("still believes", flush=True)
"""

#: Eight clients hold a lock each until they lose it, and print why.
PAUSED_CROWD = """
import sys, time, coordlock
clients = [coordlock.connect(sys.argv[1]) for _ in range(8)]
grants = [one.lock(f"orders/{number}").acquire() for number, one in enumerate(clients)]
time.sleep(0.5)  # not to synchronize: who holds for a moment watches itself
print("held", flush=True)
for grant in grants:
    grant.lost.wait()
for grant in grants:
    print(grant.lost.reason, flush=True)
for client in clients:
    client.close()
"""

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
def test_ctrl_c_leaves_the_queue(scheme: str, shared: Etcd | ZooKeeper, root: str) -> None:
    url = shared.url_for(root, ttl="60s")
    with coordlock.connect(url) as client, client.lock("orders"):
        with script(WAITER, url) as process:
            eventually(lambda: length(client) == 2)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert "KeyboardInterrupt" in errors
        eventually(lambda: length(client) == 1, within=20)  # far less than the time-to-live


@both
def test_a_killed_waiter_is_passed_over_when_its_session_ends(
    scheme: str, shared: Etcd | ZooKeeper, root: str
) -> None:
    with coordlock.connect(shared.url_for(root, ttl="60s")) as client:
        holding = client.lock("orders").acquire()
        with script(WAITER, shared.url_for(root, ttl="2s")) as process:
            eventually(lambda: length(client) == 2)
            process.kill()
            process.communicate()
        holding.release()
        assert client.lock("orders").acquire(timeout=60).release()


@both
def test_a_process_that_was_paused_past_its_lease_knows_as_soon_as_it_looks(
    scheme: str, shared: Etcd | ZooKeeper, root: str
) -> None:
    with (
        coordlock.connect(shared.url_for(root, ttl="60s")) as client,
        script(PAUSED, shared.url_for(root, ttl="2s")) as process,
    ):
        assert process.stdout is not None
        token = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGSTOP)
        grant = client.lock("orders").acquire(timeout=60)
        assert grant.token > token
        # The line is there before the process runs again, so it looks before its threads do.
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.readline().startswith("lost:")
        process.communicate(timeout=60)
        assert grant.state is coordlock.GrantState.HELD


@both
def test_holders_that_were_paused_past_their_leases_are_not_told_of_an_operator(
    scheme: str, shared: Etcd | ZooKeeper, root: str
) -> None:
    with (
        coordlock.connect(shared.url_for(root, ttl="60s")) as client,
        script(PAUSED_CROWD, shared.url_for(root, ttl="2s")) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGSTOP)
        eventually(lambda: not any(length(client, f"orders/{number}") for number in range(8)))
        os.kill(process.pid, signal.SIGCONT)
        reasons, _ = process.communicate(timeout=60)
        # Which news comes first, that of the departure or the timer's, is up to the scheduler.
        assert len(reasons.splitlines()) == 8
        assert "operator" not in reasons


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


def test_history_is_compacted_under_waiters(etcd: Etcd, root: str, start: Start) -> None:
    with coordlock.connect(etcd.url_for(root, ttl="60s")) as client:
        holding, waiting = hold_and_wait(start, client, client)
        etcd.etcdctl("put", "/elsewhere", "x")
        etcd.compact()
        assert not waiting.done()
        holding.release()
        assert waiting.result(60).release()


def test_history_is_compacted_while_a_waiter_is_cut_off(
    etcd: Etcd, root: str, start: Start
) -> None:
    with (
        FaultProxy(etcd.host, etcd.port) as proxy,
        coordlock.connect(f"etcd://127.0.0.1:{proxy.port}{root}?ttl=60s") as client,
        coordlock.connect(etcd.url_for(root)) as other,
    ):
        holding, waiting = hold_and_wait(start, other, client)
        proxy.refuse()
        proxy.drop_connections()
        holding.release()
        etcd.etcdctl("put", "/elsewhere", "x")
        etcd.compact()
        proxy.heal()
        assert waiting.result(60).release()
