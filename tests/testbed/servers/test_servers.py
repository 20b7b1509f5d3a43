"""The test servers themselves: what they promise to the tests that use them."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    NoAuthError,
    SessionClosedRequireSaslError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_digest_acl

from coordlock.testing.waiting import eventually
from testbed.servers.certificates import Certificates
from testbed.servers.endpoint import Endpoint
from testbed.servers.etcd import Etcd, EtcdCluster, EtcdServer, ExternalEtcd
from testbed.servers.process import PortTaken, ServerFailed
from testbed.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble, ZooKeeperServer
from tests.conftest import INSTALL

pytestmark = [pytest.mark.etcd, pytest.mark.zookeeper]


def test_etcd_answers_its_own_command_line_client(etcd: Etcd, root: str) -> None:
    assert etcd.etcdctl("put", f"{root}/key", "value") == "OK\n"
    assert etcd.etcdctl("get", f"{root}/key", "--print-value-only") == "value\n"


def test_zookeeper_answers_kazoo(zookeeper: ZooKeeper, root: str) -> None:
    with zookeeper.kazoo() as client:
        client.create(root, b"value")
        assert client.get(root)[0] == b"value"
        client.delete(root)


def test_a_url_carries_root_options_and_escaped_credentials() -> None:
    endpoint = Endpoint("etcd", ("a:1", "b:2"), "me", "p@ss/w:1", {"tls": "true"})
    url = endpoint.url("/x", ttl="3s")
    assert url == "etcd://me:p%40ss%2Fw%3A1@a:1,b:2/x?tls=true&ttl=3s"
    assert Endpoint.parse(url) == replace(endpoint, options={"tls": "true", "ttl": "3s"})


class TestMissingServices:
    """A run of this very file, on a machine that has no server."""

    def test_the_run_fails_and_names_the_line_that_installs_them(self) -> None:
        run = run_this_file(PATH="")
        assert run.returncode == pytest.ExitCode.USAGE_ERROR
        assert "not installed: etcd, zookeeper" in run.stderr
        assert f"\n    {INSTALL}\n" in run.stderr

    @pytest.mark.parametrize("workers", ["-n0", "-n2"])
    def test_what_is_left_out_is_reported(self, workers: str) -> None:
        run = run_this_file("--without=etcd,zookeeper", workers, PATH="")
        assert run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
        assert re.search(r"left out by --without: [1-9]\d* tests that need etcd\n", run.stdout)
        assert re.search(r"left out by --without: [1-9]\d* tests that need zookeeper\n", run.stdout)

    def test_a_misspelled_service_is_an_error(self) -> None:
        run = run_this_file("--without=mysql")
        assert run.returncode == pytest.ExitCode.USAGE_ERROR
        assert "--without knows curator, etcd, postgres, redis, zookeeper, not mysql" in run.stderr

    def test_services_that_run_elsewhere_need_not_be_installed(
        self, etcd: Etcd, zookeeper: ZooKeeper
    ) -> None:
        run = run_this_file(
            "-k=zookeeper_answers_kazoo or digest_authentication",
            PATH="",
            COORDLOCK_TEST_ETCD_URL=etcd.url,
            COORDLOCK_TEST_ZOOKEEPER_URL=zookeeper.url,
        )
        assert run.returncode == pytest.ExitCode.OK, run.stdout + run.stderr
        assert "2 passed" in run.stdout


def run_this_file(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize("server_class", [EtcdServer, ZooKeeperServer])
class TestProcess:
    """What both kinds of server do as processes."""

    def test_a_server_keeps_its_port_and_data_over_a_restart_and_a_kill(
        self, server_class: Any, tmp_path: Path
    ) -> None:
        with server_class(tmp_path) as server:
            url = server.url
            write(server, "one")
            server.restart()
            write(server, "two")
            server.kill()
            assert not server.answers()
            server.start()
            assert server.url == url
            assert read(server) == "two"

    def test_a_paused_server_gives_no_answer_until_it_is_resumed(
        self, server_class: Any, tmp_path: Path
    ) -> None:
        with server_class(tmp_path) as server:
            server.pause()
            assert not server.answers()
            server.resume()
            eventually(server.answers, "an answer after the pause")

    def test_a_paused_server_can_be_stopped(self, server_class: Any, tmp_path: Path) -> None:
        with server_class(tmp_path) as server:
            server.pause()
        assert not server.answers()

    def test_a_taken_port_is_exchanged_at_the_first_start(
        self, server_class: Any, tmp_path: Path
    ) -> None:
        with server_class(tmp_path / "first") as first:
            second = server_class(tmp_path / "second")
            second._client_port = first.port
            with second:
                assert second.port != first.port

    def test_a_taken_port_is_reported_at_a_later_start(
        self, server_class: Any, tmp_path: Path
    ) -> None:
        with server_class(tmp_path / "first") as first:
            first.stop()
            second = server_class(tmp_path / "second")
            second._client_port = first.port
            with second, pytest.raises(PortTaken):
                first.start()

    def test_a_server_dies_with_the_process_that_started_it(
        self, server_class: Any, tmp_path: Path
    ) -> None:
        program = (
            "import pathlib, sys, time\n"
            f"from {server_class.__module__} import {server_class.__name__}\n"
            f"server = {server_class.__name__}(pathlib.Path(sys.argv[1])).start()\n"
            "print(server.pid, server.port, flush=True)\n"
            "time.sleep(60)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        ) as starter:
            assert starter.stdout
            pid, port = map(int, starter.stdout.readline().split())
            socket.create_connection(("127.0.0.1", port)).close()
            starter.kill()
            eventually(lambda: has_ended(pid), "the end of the orphaned server")

    def test_a_server_that_cannot_start_shows_its_log(
        self, server_class: Any, tmp_path: Path
    ) -> None:
        server = server_class(tmp_path)
        server.data.write_text("in the way of the data directory")
        with pytest.raises((ServerFailed, FileExistsError), match="data"):
            server.start()


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or dead and only waiting for its parent to notice."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def write(server: EtcdServer | ZooKeeperServer, value: str) -> None:
    if isinstance(server, EtcdServer):
        server.etcdctl("put", "/key", value)
        return
    with server.kazoo() as client:
        client.ensure_path("/key")
        client.set("/key", value.encode())


def read(server: EtcdServer | ZooKeeperServer) -> str:
    if isinstance(server, EtcdServer):
        return server.etcdctl("get", "/key", "--print-value-only").strip()
    with server.kazoo() as client:
        return str(client.get("/key")[0].decode())


class TestEtcd:
    """What only etcd does."""

    def test_compaction_makes_older_revisions_unreadable(self, tmp_path: Path) -> None:
        with EtcdServer(tmp_path) as server:
            for value in ("one", "two", "three"):
                server.etcdctl("put", "/key", value)
            assert server.compact() == server.revision() == 4
            with pytest.raises(subprocess.CalledProcessError) as refused:
                server.etcdctl("get", "/key", "--rev=2")
            assert "compacted" in refused.value.stderr

    def test_leases_of_one_second_are_granted(self, etcd: Etcd) -> None:
        assert "TTL(1s)" in etcd.etcdctl("lease", "grant", "1")

    def test_tls_needs_the_authority(self, tmp_path: Path, certificates: Certificates) -> None:
        with EtcdServer(tmp_path / "etcd", tls=certificates) as server:
            write(server, "secret")
            assert read(server) == "secret"
            assert f"ca={certificates.ca}".replace("/", "%2F") in server.url
            refused_by_etcd(replace(server.endpoint, options={}))
            stranger = Certificates(tmp_path / "stranger")
            refused_by_etcd(with_options(server.endpoint, ca=stranger.ca))

    def test_mutual_tls_needs_a_certificate_of_the_authority(
        self, tmp_path: Path, certificates: Certificates
    ) -> None:
        with EtcdServer(tmp_path / "etcd", tls=certificates, mutual=True) as server:
            write(server, "secret")
            assert read(server) == "secret"
            only_ca = {"tls": "true", "ca": str(certificates.ca)}
            refused_by_etcd(replace(server.endpoint, options=only_ca))
            stranger = Certificates(tmp_path / "stranger")
            options = {"cert": stranger.client, "key": stranger.client_key}
            refused_by_etcd(with_options(server.endpoint, **options))

    def test_authentication_limits_the_user_to_the_prefix(self, tmp_path: Path) -> None:
        with EtcdServer(tmp_path, auth=True) as server:
            user = server.endpoint
            allowed = f"{server.AUTH_PREFIX}key"
            assert etcdctl_as(user, "put", allowed, "value") == "OK\n"
            for wrong, reason in (
                (replace(user, password="wrong"), "authentication failed"),
                (replace(user, username=None, password=None), "user name is empty"),
            ):
                with pytest.raises(subprocess.CalledProcessError) as refused:
                    etcdctl_as(wrong, "get", allowed)
                assert reason in refused.value.stderr
            with pytest.raises(subprocess.CalledProcessError) as refused:
                etcdctl_as(user, "put", "/elsewhere", "value")
            assert "permission denied" in refused.value.stderr
            server.restart()
            assert etcdctl_as(user, "get", allowed, "--print-value-only") == "value\n"

    def test_a_cluster_elects_another_leader_when_its_leader_dies(self, tmp_path: Path) -> None:
        with EtcdCluster(tmp_path) as cluster:
            leader = cluster.leader()
            cluster.etcdctl("put", "/key", "value")
            leader.kill()
            successor = cluster.leader()
            assert successor is not leader
            assert read(successor) == "value"
            leader.start()
            assert read(leader) == "value"


def etcdctl_as(who: Endpoint, *arguments: str) -> str:
    """Run ``etcdctl`` with the credentials of ``who``."""
    return ExternalEtcd(who.url()).etcdctl(*arguments)


def refused_by_etcd(who: Endpoint) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        etcdctl_as(who, "--dial-timeout=1s", "--command-timeout=1s", "get", "/key")


def with_options(endpoint: Endpoint, **options: Path) -> Endpoint:
    changed = {name: str(path) for name, path in options.items()}
    return replace(endpoint, options={**endpoint.options, **changed})


class TestZooKeeper:
    """What only ZooKeeper does."""

    def test_digest_authentication_guards_a_node(self, zookeeper: ZooKeeper, root: str) -> None:
        acl = [make_digest_acl("me", "password", all=True)]
        with zookeeper.kazoo(auth_data=[("digest", "me:password")]) as client:
            client.create(root, b"value", acl=acl)
            assert client.get(root)[0] == b"value"
            with zookeeper.kazoo() as other, pytest.raises(NoAuthError):
                other.get(root)
            client.delete(root)

    def test_tls_needs_the_authority(self, tmp_path: Path, certificates: Certificates) -> None:
        with ZooKeeperServer(tmp_path / "zookeeper", tls=certificates) as server:
            write(server, "secret")
            assert read(server) == "secret"
            assert is_refused(server, None)
            assert not is_refused(server, certificates.client_context(certificate=False))
            assert is_refused(server, Certificates(tmp_path / "stranger").client_context())

    def test_mutual_tls_needs_a_certificate_of_the_authority(
        self, tmp_path: Path, certificates: Certificates
    ) -> None:
        with ZooKeeperServer(tmp_path / "zookeeper", tls=certificates, mutual=True) as server:
            write(server, "secret")
            assert read(server) == "secret"
            assert not is_refused(server, certificates.client_context())
            assert is_refused(server, certificates.client_context(certificate=False))
            context = certificates.client_context(certificate=False)
            stranger = Certificates(tmp_path / "stranger")
            context.load_cert_chain(stranger.client, stranger.client_key)
            assert is_refused(server, context)

    def test_sasl_is_required(self, tmp_path: Path) -> None:
        with ZooKeeperServer(tmp_path, sasl=True) as server:
            write(server, "secret")
            assert read(server) == "secret"
            with (
                server.kazoo(sasl_options=None) as client,
                pytest.raises(SessionClosedRequireSaslError),
            ):
                client.get_children("/")

    # kazoo lets the server's refusal end its connection thread: whoever asks after that is told of
    # a lost connection, and `start`, if it had not yet seen that it was connected, of a time-out.
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_sasl_checks_the_password(self, tmp_path: Path) -> None:
        with ZooKeeperServer(tmp_path, sasl=True) as server:
            write(server, "secret")  # the right password: whatever fails below, the wrong one did
            login = server.kazoo_options()["sasl_options"] | {"password": "wrong"}
            with (
                pytest.raises((AuthFailedError, ConnectionLoss, KazooTimeoutError)),
                server.kazoo(sasl_options=login) as client,
            ):
                client.get_children("/")

    def test_an_ensemble_elects_another_leader_when_its_leader_dies(self, tmp_path: Path) -> None:
        with ZooKeeperEnsemble(tmp_path) as ensemble:
            leader = ensemble.leader()
            write(leader, "value")
            leader.kill()
            successor = ensemble.leader()
            assert successor is not leader
            assert read(successor) == "value"
            leader.start()
            assert read(leader) == "value"


def is_refused(server: ZooKeeperServer, context: ssl.SSLContext | None) -> bool:
    """Whether a client gets no answer with these certificates, or without TLS."""
    # Not with kazoo: it forgets to close sockets whose handshake failed.
    with socket.create_connection((server.host, server.port), timeout=5) as plain:
        try:
            connection = (
                context.wrap_socket(plain, server_hostname="localhost") if context else plain
            )
            with connection:
                connection.sendall(b"ruok\n\n")  # long enough to be recognized as no TLS record
                return connection.recv(4) != b"imok"
        except (ssl.SSLError, ConnectionError):
            return True
