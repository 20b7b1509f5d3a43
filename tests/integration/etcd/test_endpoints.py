"""Several hosts: dead ones, silent ones, strange ones, and a cluster that loses a member."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from coordlock_etcd import EtcdBackend

import coordlock
from coordlock.errors import BackendError, BackendUnavailable
from coordlock.testing.backend_contract import BOUND, Listener, Party, backend_for
from coordlock.testing.connection import Connection
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.network.name_server import NameServer
from testbed.servers.certificates import Certificates
from testbed.servers.etcd import Etcd, EtcdCluster, EtcdServer
from testbed.servers.ports import free_port
from testbed.servers.process import ServerProcess
from tests.integration.etcd.conftest import Join

pytestmark = pytest.mark.faults

#: Nothing listens there.
DEAD = "127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("tls"), tls=certificates) as server:
        yield server


@pytest.fixture
def silent() -> Iterator[str]:
    """A host that accepts connections and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def website() -> Iterator[str]:
    """A host that speaks HTTP/1.1."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def no_etcd(request: pytest.FixtureRequest) -> str:
    if request.param == "dead":
        return DEAD
    if request.param == "unknown":
        return "nowhere.invalid:2379"
    host: str = request.getfixturevalue(request.param)
    return host


everywhere = pytest.mark.parametrize(
    "no_etcd", ["dead", "unknown", "silent", "website"], indirect=True
)


@everywhere
def test_another_host_is_used_when_the_first_is_no_good(
    no_etcd: str, etcd: Etcd, join: Join, root: str
) -> None:
    party = join(f"etcd://{no_etcd},{etcd.endpoint.hosts[0]}{root}?ttl=60s")
    party.enqueue("q")
    assert party.backend.heartbeat().result(BOUND) == 60


@everywhere
def test_what_is_no_etcd_is_reported_in_time(no_etcd: str, root: str, no_leaks: None) -> None:
    url = f"etcd://{no_etcd}{root}?request_timeout=2s"
    backend = backend_for(EtcdBackend, url)
    try:
        with pytest.raises(BackendUnavailable) as unavailable:
            backend.open(Listener()).result(10)
    finally:
        backend.close().result(BOUND)
    assert no_etcd in unavailable.value.reason


def test_a_zookeeper_is_no_etcd(request: pytest.FixtureRequest, root: str, no_leaks: None) -> None:
    zookeeper = request.getfixturevalue("zookeeper")
    url = f"etcd://{zookeeper.host}:{zookeeper.port}{root}?request_timeout=2s"
    backend = backend_for(EtcdBackend, url)
    try:
        with pytest.raises(BackendUnavailable, match="is this an etcd endpoint"):
            backend.open(Listener()).result(10)
    finally:
        backend.close().result(BOUND)


class GrpcProxy(ServerProcess):
    """etcd's own proxy, to a server."""

    def __init__(self, directory: Path, server: Etcd) -> None:
        self._server = server.endpoint.hosts[0]
        super().__init__(directory)

    def choose_ports(self) -> None:
        self.port = free_port()

    def command(self) -> list[str]:
        proxy = f"--endpoints={self._server}", f"--listen-addr=127.0.0.1:{self.port}"
        return ["etcd", "grpc-proxy", "start", *proxy]

    def answers(self) -> bool:
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def test_etcds_proxy_is_refused_by_name(tmp_path: Path, etcd: Etcd, root: str) -> None:
    with (
        GrpcProxy(tmp_path, etcd) as proxy,
        pytest.raises(BackendError, match=r"grpc-proxy.* name the members"),
    ):
        coordlock.connect(f"etcd://127.0.0.1:{proxy.port}{root}")


def test_a_frozen_clock_is_named_as_what_keeps_grpc_from_waiting(
    join: Join, etcd: Etcd, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    party = join(etcd.url_for(root))
    with monkeypatch.context() as frozen:
        frozen.setattr(time, "time", lambda: 1_000_000_000.0)
        error = party.backend.heartbeat().exception(BOUND)
    assert type(error) is BackendError  # which nobody repeats
    assert "freezegun.configure(extend_ignore_list=['grpc'])" in error.reason
    assert party.backend.heartbeat().result(BOUND) > 0


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    """What gRPC asks for addresses. No name has one yet."""
    with NameServer(None) as server:
        monkeypatch.setattr(
            "coordlock_etcd.transport.cluster._TARGET", f"dns://127.0.0.1:{server.port}/"
        )
        yield server


@pytest.fixture
def by_name(names: NameServer, etcd: Etcd, root: str, no_leaks: None) -> Iterator[EtcdBackend]:
    """Reaches etcd by a name."""
    backend = backend_for(EtcdBackend, f"etcd://moving.test:{etcd.port}{root}?request_timeout=2s")
    yield backend
    backend.close().result(BOUND)


def test_a_name_that_points_elsewhere_is_followed_within_a_ttl(
    by_name: EtcdBackend, names: NameServer
) -> None:
    names.address = "127.0.0.2"  # nothing listens there
    assert isinstance(by_name.open(Listener()).exception(BOUND), BackendUnavailable)
    names.address = "127.0.0.1"
    eventually(lambda: by_name.open(Listener()).exception(BOUND) is None)


def test_a_name_that_had_no_address_is_looked_up_by_the_next_call(
    by_name: EtcdBackend, names: NameServer
) -> None:
    """gRPC itself would wait longer and longer, up to two minutes."""
    for _ in range(3):
        error = by_name.open(Listener()).exception(BOUND)
        assert isinstance(error, BackendUnavailable)
        assert "moving.test" in error.reason
    names.address = "127.0.0.1"
    by_name.open(Listener()).result(BOUND)


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_host_that_has_answered_is_not_asked_whether_it_is_an_etcd(
    tmp_path: Path, join: Join, root: str, fault: str
) -> None:
    with EtcdServer(tmp_path) as server:
        party = join(server.url_for(root, ttl="60s", request_timeout="1s"))
        getattr(server, fault)()
        reasons: set[str] = set()

        def is_dialled_again() -> bool:
            error = party.backend.heartbeat().exception(BOUND)
            assert isinstance(error, BackendUnavailable)
            reasons.add(error.reason)
            return any("ipv4" in reason for reason in reasons)

        eventually(is_dialled_again)
        assert [reason for reason in reasons if "?" in reason] == []
        if fault == "pause":
            server.resume()


def test_what_keeps_a_client_from_each_host_is_told(
    secure: EtcdServer, tmp_path: Path, root: str, no_leaks: None
) -> None:
    stranger = Certificates(tmp_path)
    url = f"etcd://{secure.endpoint.hosts[0]},{DEAD}{root}?tls=true&ca={stranger.ca}"
    backend = backend_for(EtcdBackend, url)
    try:
        for _ in range(2):  # beginning with one host, and with the other
            error = backend.open(Listener()).exception(BOUND)
            assert isinstance(error, BackendUnavailable)
            assert "the option ca must name" in error.reason
            assert f"{DEAD}: " in error.reason
    finally:
        backend.close().result(BOUND)


def test_the_service_is_described_with_the_hosts_that_do_not_answer(
    etcd: Etcd, join: Join, root: str
) -> None:
    host = etcd.endpoint.hosts[0]
    info = join(f"etcd://{host},{DEAD}{root}").backend.describe().result(BOUND)
    assert info.endpoints == (f"{host} (leader)", f"{DEAD} (no answer)")
    assert info.version
    assert any(DEAD in warning for warning in info.warnings)


def repeat(request: Callable[[], object]) -> Callable[[], bool]:
    """Whether ``request`` succeeds now."""

    def succeeds() -> bool:
        try:
            request()
        except BackendUnavailable:
            return False
        return True

    return succeeds


def test_a_request_that_may_have_been_answered_is_not_made_at_another_host(
    etcd: Etcd, join: Join, root: str
) -> None:
    contender = join(etcd.url_for(root, ttl="60s")).enqueue("q")[1]
    with FaultProxy(etcd.host, etcd.port, GrpcFrames) as proxy:
        party = join(f"etcd://127.0.0.1:{proxy.port},{etcd.endpoint.hosts[0]}{root}?ttl=60s")
        proxy.on_request("Txn", Connection.lose_reply)
        # Asked again, it would say that nobody was there to be evicted.
        with pytest.raises(BackendUnavailable):
            party.backend.evict(contender).result(BOUND)
        assert party.backend.snapshot("q").result(BOUND).contenders == ()
        assert not party.backend.evict(contender).result(BOUND)


def test_a_request_without_an_answer_is_sent_again_over_the_same_connection(
    party: Party, proxy: FaultProxy
) -> None:
    """As one that was lost with a leader: the member and the connection are well."""
    party.enqueue("q")
    with proxy.counting() as passed:
        proxy.replies.black_hole()
        reading = party.backend.snapshot("q")
        eventually(lambda: proxy.counts().requests["Range"] > 1)
        proxy.heal()
        assert len(reading.result(BOUND).contenders) == 1
    assert passed.requests["Range"] == 2
    assert passed.connections == 0


@pytest.mark.parametrize("attempts", [1, 2])
def test_only_the_second_attempt_in_a_row_without_an_answer_costs_a_connection(
    party: Party, proxy: FaultProxy, attempts: int
) -> None:
    """A server that is slow for a moment must not have to open all watches again."""
    entry = party.enqueue("warm")[0]

    def costs_as_many() -> bool:
        with proxy.counting() as passed:
            proxy.replies.black_hole()
            for _ in range(attempts):
                # Together with others, which count as one.
                sent = [party.backend.withdraw([entry]) for _ in range(5)]
                assert all(isinstance(one.exception(BOUND), BackendUnavailable) for one in sent)
            proxy.heal()
            party.backend.heartbeat().result(BOUND)
        return passed.connections == attempts - 1

    # Where the machine stands still between the five, they are two attempts.
    eventually(costs_as_many, within=60)


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_session_and_its_watches_move_on_when_their_member_fails(
    cluster: EtcdCluster, join: Join, root: str, fault: str
) -> None:
    hosts = ",".join(cluster.endpoint.hosts)
    party = join(f"etcd://{hosts}{root}?ttl=60s&request_timeout=2s")
    other = join(f"etcd://{cluster.endpoint.hosts[2]},{cluster.endpoint.hosts[1]}{root}?ttl=60s")
    entry, ahead, _ = other.enqueue("q")
    _, contender, snapshot = party.enqueue("q")
    told = threading.Event()
    party.backend.watch(ahead, snapshot.revision, lambda _: told.set())
    member = cluster.members[0]
    try:
        getattr(member, fault)()
        eventually(repeat(lambda: party.backend.heartbeat().result(BOUND)))
        eventually(repeat(lambda: other.backend.withdraw([entry]).result(BOUND)))
        assert told.wait(BOUND)
        seen = party.backend.snapshot("q", owners=True).result(BOUND)
        assert seen.contenders == (contender,)
    finally:
        if fault == "pause":
            member.resume()
        else:
            member.start()
    eventually(lambda: all(one.answers() for one in cluster.members))


def test_a_member_without_a_majority_is_left_at_once(tmp_path: Path, join: Join, root: str) -> None:
    with EtcdCluster(tmp_path) as cluster:
        party = join(cluster.url_for(root, ttl="60s", request_timeout="20s"))
        _, contender, snapshot = party.enqueue("q")
        party.backend.watch(contender, snapshot.revision, lambda _: None)
        for member in cluster.members[1:]:
            member.kill()
        # The one that is left has no leader: it says so, instead of keeping requests waiting.
        eventually(lambda: party.listener.events)

        def refused() -> bool:
            error = party.backend.heartbeat().exception(BOUND)
            return isinstance(error, BackendUnavailable) and "no leader" in error.reason

        eventually(refused)
        for member in cluster.members[1:]:
            member.spawn()
        eventually(repeat(lambda: party.backend.heartbeat().result(BOUND)), within=60)
        eventually(lambda: party.listener.events[-1] == "recovered")
        found = party.backend.snapshot("q", owners=True).result(BOUND)
        assert found.contenders == (contender,)
