"""TLS, mutual TLS, and what people are told when it does not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from coordlock_etcd import EtcdBackend

from coordlock.backend.config import configure
from coordlock.errors import BackendUnavailable
from coordlock.runtime.clock import SystemTimers
from coordlock.testing.backend_contract import BOUND, Listener
from testbed.servers.certificates import Certificates
from testbed.servers.etcd import Etcd, EtcdServer
from tests.integration.etcd.conftest import Join


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("tls"), tls=certificates) as server:
        yield server


@pytest.fixture(scope="module")
def mutual(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("mtls"), tls=certificates, mutual=True) as server:
        yield server


def reason(host: str, **options: object) -> str:
    """Why no session can be opened at ``host``."""
    backend = EtcdBackend.configure(configure(f"etcd://{host}", options), timers=SystemTimers())
    try:
        error = backend.open(Listener()).exception(BOUND)
    finally:
        backend.close().result(BOUND)
    assert isinstance(error, BackendUnavailable)
    return error.reason


@pytest.mark.parametrize("kind", ["secure", "mutual"])
def test_locks_work_over_tls(kind: str, request: pytest.FixtureRequest, join: Join) -> None:
    server: EtcdServer = request.getfixturevalue(kind)
    party = join(server.url_for("/x", ttl="60s"))
    entry, _, _ = party.enqueue("q")
    assert party.backend.heartbeat().result(BOUND) == 60
    assert party.backend.withdraw([entry]).result(BOUND)


def test_a_server_that_nobody_known_has_signed_is_refused(
    secure: EtcdServer, tmp_path: Path, no_leaks: None
) -> None:
    stranger = Certificates(tmp_path)
    said = reason(secure.endpoint.hosts[0], tls=True, ca=str(stranger.ca))
    assert "the option ca must name" in said


def test_the_systems_authorities_are_the_default(secure: EtcdServer, no_leaks: None) -> None:
    assert "the option ca must name" in reason(secure.endpoint.hosts[0], tls=True)


#: Fails to connect, and tells which variables of gRPC are set then.
FAIL = """
import os, sys, coordlock
try:
    coordlock.connect(sys.argv[1])
except coordlock.BackendUnavailable as error:
    print(error.reason)
print([name for name in os.environ if name.startswith("GRPC_")])
"""


@pytest.mark.parametrize("wanted", [None, "INFO"])
def test_grpc_logs_a_failed_handshake_only_for_those_who_ask_for_its_log(
    secure: EtcdServer, tmp_path: Path, wanted: str | None
) -> None:
    url = replace(secure.endpoint, options={"tls": "true", "ca": str(Certificates(tmp_path).ca)})
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("GRPC_")}
    if wanted is not None:
        environment["GRPC_VERBOSITY"] = wanted
    ended = subprocess.run(
        [sys.executable, "-c", FAIL, url.url("/x", connect_timeout="2s")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "the option ca must name" in ended.stdout
    assert ended.stdout.endswith("[]\n" if wanted is None else "['GRPC_VERBOSITY']\n")
    complaints = [line for line in ended.stderr.splitlines() if "coordlock: " not in line]
    assert bool(complaints) is (wanted is not None), ended.stderr


def test_a_missing_client_certificate_is_reported(
    mutual: EtcdServer, certificates: Certificates, no_leaks: None
) -> None:
    said = reason(mutual.endpoint.hosts[0], tls=True, ca=str(certificates.ca))
    assert mutual.endpoint.hosts[0] in said


def test_tls_where_there_is_none_is_reported(
    etcd: Etcd, certificates: Certificates, no_leaks: None
) -> None:
    said = reason(etcd.endpoint.hosts[0], tls=True, ca=str(certificates.ca))
    assert "does it speak TLS?" in said


def test_no_tls_where_there_is_is_reported(secure: EtcdServer, no_leaks: None) -> None:
    assert "does it want tls=true?" in reason(secure.endpoint.hosts[0])
