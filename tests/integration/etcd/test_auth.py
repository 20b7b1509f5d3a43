"""Users and passwords: logins, tokens that end, rights that are missing."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from coordlock_etcd import EtcdBackend
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.rpc import AUTHENTICATE, RANGE
from coordlock_etcd.transport.cluster import Endpoint
from coordlock_etcd.transport.connection import Connection

from coordlock import connect
from coordlock.backend import Put, Queue
from coordlock.backend.config import configure
from coordlock.errors import AuthenticationFailed, CoordlockError
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.log import flush
from coordlock.runtime.promise import Promise
from coordlock.testing.backend_contract import BOUND, Listener, Party, backend_for
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.certificates import Certificates
from testbed.servers.etcd import Etcd, EtcdServer
from tests.integration.etcd.conftest import EtcdClient, Join
from tests.integration.refusing import check_nothing_stays

TOKEN_TTL = 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("auth"), auth=True, token_ttl=TOKEN_TTL) as server:
        yield server


@pytest.fixture
def url(server: EtcdServer, root: str) -> str:
    return server.url_for(f"/coordlock{root}", ttl="60s")


def refusal(url: str) -> CoordlockError:
    backend = backend_for(EtcdBackend, url)
    try:
        error = backend.open(Listener()).exception(BOUND)
    finally:
        backend.close().result(BOUND)
    assert isinstance(error, CoordlockError)
    return error


def let_tokens_end() -> None:
    # To ask whether a token has ended would prolong it. etcd itself looks once a second.
    time.sleep(TOKEN_TTL + 2)


def logins(proxy: FaultProxy) -> int:
    counts = proxy.counts().requests
    return sum(n for kind, n in counts.items() if kind.endswith("Authenticate"))


def test_a_user_may_lock_below_the_root_that_is_granted(join: Join, url: str) -> None:
    party = join(url)
    entry, contender, snapshot = party.enqueue("q")
    told = threading.Event()
    party.backend.watch(contender, snapshot.revision, lambda _: told.set())
    assert party.backend.heartbeat().result(BOUND) == 60
    assert party.backend.describe().result(BOUND).version
    assert party.backend.queues().result(BOUND) == ["q"]
    assert party.backend.withdraw([entry]).result(BOUND)
    assert told.wait(BOUND)


def test_a_wrong_password_is_refused_and_not_shown(server: EtcdServer, no_leaks: None) -> None:
    wrong = replace(server.endpoint, password="s3cret")
    error = refusal(wrong.url("/coordlock/x"))
    assert isinstance(error, AuthenticationFailed)
    assert "invalid user ID or password" in str(error)
    assert "s3cret" not in str(error) + repr(error)


def test_a_user_who_is_not_named_is_refused(server: EtcdServer, no_leaks: None) -> None:
    nobody = replace(server.endpoint, username=None, password=None)
    backend = backend_for(EtcdBackend, nobody.url("/coordlock/x"))
    opening = backend.open(Listener())
    if opening.exception(BOUND) is None:
        # etcd grants leases to anybody, until they are to hold a key.
        error = backend.snapshot("q").exception(BOUND)
    else:
        error = opening.exception(BOUND)
    assert isinstance(error, AuthenticationFailed)
    backend.close().result(BOUND)


def test_a_login_that_takes_long_does_not_cost_the_request_its_time(
    etcd: Etcd, no_leaks: None
) -> None:
    class SlowLogin:
        def token(self) -> Promise[str | None]:
            token: Promise[str | None] = Promise()
            logging_in = threading.Timer(1.5, token.resolve, [None])
            logging_in.start()
            return token

        def forget(self, token: str | None) -> None: ...

    connection = Connection([Endpoint(etcd.endpoint.hosts[0])], BOUND, None, SlowLogin())
    for timeout in (BOUND, 1.4):  # only then is the connection open
        answer = connection.call(RANGE, pb.RangeRequest(key=b"k"), id, timeout=timeout, once=True)
        answer.result(BOUND)
    connection.close()


def test_a_root_without_rights_is_refused(join: Join, server: EtcdServer) -> None:
    party = join(server.url_for("/elsewhere", ttl="60s"))
    with pytest.raises(AuthenticationFailed, match="read and write below the root"):
        party.enqueue("q")


def test_a_token_that_has_ended_is_renewed_not_by_each_request_and_watches_survive_its_end(
    server: EtcdServer, join: Join, root: str
) -> None:
    with FaultProxy(server.host, server.port, GrpcFrames) as proxy:
        through = replace(server.endpoint, hosts=(f"127.0.0.1:{proxy.port}",))
        party = join(through.url(f"/coordlock{root}", ttl="60s"))
        entry, contender, snapshot = party.enqueue("q")
        early, late = threading.Event(), threading.Event()
        party.backend.watch(contender, snapshot.revision, lambda _: early.set())
        assert logins(proxy) == 1
        let_tokens_end()
        answers = [party.backend.snapshot("q") for _ in range(20)]
        assert all(len(answer.result(BOUND).contenders) == 1 for answer in answers)
        assert 2 <= logins(proxy) < 5  # two threads may log in at the same moment
        other, another, seen = party.enqueue("q")
        # On the stream that was opened with the token that has ended.
        party.backend.watch(another, seen.revision, lambda _: late.set())
        assert party.backend.withdraw([other]).result(BOUND)
        assert late.wait(BOUND)
        assert party.backend.withdraw([entry]).result(BOUND)
        assert early.wait(BOUND)
        assert party.listener.events == []  # nobody needs to know that a token has ended
        party.backend.close().result(BOUND)


def add_user(server: EtcdServer, name: str, root: str) -> str:
    """The URL of a user who may lock below ``root``."""
    for command in (
        ("user", "add", f"{name}:pass"),
        ("role", "add", name),
        ("role", "grant-permission", name, "readwrite", "--prefix=true", f"{root}/"),
        ("user", "grant-role", name, name),
    ):
        server.etcdctl(*command)
    return replace(server.endpoint, username=name, password="pass").url(root, ttl="60s")


def revoke_right(server: EtcdServer, name: str, root: str) -> None:
    try:
        server.etcdctl("role", "revoke-permission", name, "--prefix=true", f"{root}/")
    except subprocess.CalledProcessError as error:
        raise AssertionError(error.stderr) from None


def test_a_watch_without_the_right_to_it_puts_the_session_in_doubt(
    server: EtcdServer, join: Join, root: str
) -> None:
    party = join(add_user(server, "passing", root))
    _, contender, snapshot = party.enqueue("q")
    revoke_right(server, "passing", root)
    party.backend.watch(contender, snapshot.revision, lambda _: None)
    eventually(lambda: party.listener.events)


def test_the_log_tells_once_that_removals_are_refused(
    server: EtcdServer, root: str, no_leaks: None, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(add_user(server, "leaving", root)) as client:
        grants = [client.lock(f"q{number}").acquire(BOUND) for number in range(20)]
        revoke_right(server, "leaving", root)
        for grant in grants:
            assert grant.release() is False
        assert flush(30)
        assert caplog.text.count("could not withdraw") == 1


def test_what_is_given_up_while_a_right_is_missing_leaves_when_it_is_back(
    server: EtcdServer, root: str, no_leaks: None
) -> None:
    url = add_user(server, "paused", root)
    right = ("paused", "readwrite", "--prefix=true", f"{root}/")
    with connect(url) as client, connect(url) as other:
        check_nothing_stays(
            client,
            other,
            lambda: revoke_right(server, "paused", root),
            lambda: server.etcdctl("role", "grant-permission", *right),
        )


def test_observations_survive_the_end_of_their_streams_token_and_watches_a_restart(
    server: EtcdServer, join: Join, root: str
) -> None:
    folder = f"/coordlock{root}-data/"
    url = server.url_for(f"/coordlock{root}", ttl="60s")
    party, two = join(url), join(url).backend
    one = party.backend
    assert isinstance(one, EtcdBackend)
    early = one.follow(folder, lambda: None)
    eventually(lambda: early.view.stale_since is None)
    let_tokens_end()
    revision = two.write([Put(folder + "a", b"1")]).result(BOUND).revision
    eventually(lambda: early.view.state is not None and early.view.state.revision >= revision)
    # On the stream that was opened with the token that has ended.
    late = one.follow(Queue("q"), lambda: None)
    for observed in (early, late):
        eventually(lambda: observed.view.stale_since is None)  # noqa: B023
        assert observed.view.ended is None
    entry, contender, snapshot = party.enqueue("q")
    told = threading.Event()
    one.watch(contender, snapshot.revision, lambda _: told.set())
    server.restart()  # which forgets all tokens

    def is_written() -> bool:
        return two.write([Put(folder + "a", b"2")]).exception(BOUND) is None

    eventually(is_written)
    seen = two.read(folder).result(BOUND)
    eventually(lambda: early.view.state == seen and early.view.stale_since is None)
    assert one.withdraw([entry]).result(BOUND)
    assert told.wait(BOUND)


@pytest.fixture
def mutual(tmp_path: Path, certificates: Certificates) -> Iterator[EtcdServer]:
    """Asks for client certificates, and for passwords once `toggle_auth` was called."""
    server = EtcdServer(tmp_path, tls=certificates, mutual=True)
    server.USER = "billing"  # not the name in the certificate
    with server:
        yield server


def test_a_client_certificate_does_not_replace_the_login_when_authentication_is_turned_on(
    mutual: EtcdServer, join: Join, root: str
) -> None:
    known = replace(mutual.endpoint, username=mutual.USER, password=mutual.PASSWORD)
    party, other = (join(known.url(f"/coordlock{root}", ttl="60s")) for _ in range(2))
    backend = party.backend
    assert isinstance(backend, EtcdBackend)
    entry, contender, snapshot = party.enqueue("q")
    told = threading.Event()
    backend.watch(contender, snapshot.revision, lambda _: told.set())
    seen = backend.follow(Queue("q"), lambda: None)
    eventually(lambda: seen.view.stale_since is None)
    for _ in range(2):
        mutual.turn_auth(on=True)
        # The session has no token, so etcd takes the certificate's name for the user.
        assert len(backend.snapshot("q").result(BOUND).contenders) == 1
        another, its, now = party.enqueue("r")
        gone = threading.Event()
        backend.watch(its, now.revision, lambda _, gone=gone: gone.set())  # type: ignore[misc]
        assert other.backend.withdraw([another]).result(BOUND)
        assert gone.wait(BOUND)
        mutual.turn_auth(on=False)
        party.enqueue("s")
    assert other.backend.withdraw([entry]).result(BOUND)
    assert told.wait(BOUND)
    eventually(lambda: "q" not in backend.queues().result(BOUND))
    eventually(lambda: seen.view.state is not None and seen.view.state.contenders == ())
    assert party.listener.events == []


def test_an_observation_without_the_right_to_it_ends_alone(join: Join, url: str) -> None:
    backend = join(url).backend
    assert isinstance(backend, EtcdBackend)
    allowed = backend.follow(Queue("q"), lambda: None)
    refused = backend.follow("/elsewhere/", lambda: None)
    eventually(lambda: refused.view.ended is not None)
    assert isinstance(refused.view.ended, AuthenticationFailed)
    eventually(lambda: allowed.view.stale_since is None)
    assert allowed.view.ended is None


def test_credentials_that_nobody_asks_for_do_no_harm(
    etcd: Etcd, join: Join, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = replace(etcd.endpoint, username="somebody", password="s3cret").url(root)
    party: Party = join(url)
    party.enqueue("q")
    assert flush(30)
    assert "authentication is not enabled" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_given_clients_token_is_sent_as_it_is_at_the_time(
    server: EtcdServer, root: str, no_leaks: None
) -> None:
    client = EtcdClient(server.host, server.port)

    def log_in() -> None:
        method = client.channel.unary_unary(
            AUTHENTICATE.path, AUTHENTICATE.encode, AUTHENTICATE.decode
        )
        request = pb.AuthenticateRequest(name=server.USER, password=server.PASSWORD)
        client.metadata = (("token", method(request, timeout=BOUND).token),)

    log_in()
    party = Party(
        EtcdBackend.configure(
            configure(f"etcd://ignored/coordlock{root}"), client, timers=SystemTimers()
        )
    )
    _, contender, snapshot = party.enqueue("q")
    # A restart ends all tokens, and it is for the client to log in again.
    server.restart()
    eventually(
        lambda: isinstance(party.backend.snapshot("q").exception(BOUND), AuthenticationFailed)
    )
    log_in()
    told = threading.Event()
    party.backend.watch(contender, snapshot.revision, lambda _: told.set())
    assert party.backend.evict(contender).result(BOUND)
    assert told.wait(BOUND)
    party.backend.close().result(BOUND)
    client.channel.close()
