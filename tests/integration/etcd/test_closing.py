"""Clients that are given, and processes that end without closing theirs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from coordlock_etcd import EtcdBackend

from coordlock.backend.config import configure
from coordlock.runtime.clock import SystemTimers
from coordlock.testing.backend_contract import BOUND, Party
from coordlock.testing.proxy import FaultProxy
from testbed.servers.etcd import Etcd, EtcdServer
from tests.integration.etcd.conftest import EtcdClient, Join

#: Ends as scripts do, with a session, a watch on its own contender, and heartbeats under way.
LEAVE = """
import sys, time, coordlock
client = coordlock.connect(sys.argv[1])
grant = client.lock("q").acquire(30)
time.sleep(float(sys.argv[2]))
print(client.admin.contenders("q")[0].session)
"""

#: Ends with four clients, when the server has fallen silent.
LEAVE_TWENTY = """
import sys, coordlock
clients = [coordlock.connect(sys.argv[1]) for _ in range(20)]
grants = [client.lock(str(number)).acquire(30) for number, client in enumerate(clients)]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def client(etcd: Etcd) -> Iterator[EtcdClient]:
    client = EtcdClient(etcd.host, etcd.port)
    yield client
    client.channel.close()


def leases(etcd: Etcd) -> list[str]:
    return etcd.etcdctl("lease", "list").split()[3:]


def test_a_given_clients_channel_is_used_and_not_closed(
    etcd: Etcd, client: EtcdClient, root: str, no_leaks: None
) -> None:
    settings = configure(f"etcd://ignored{root}")
    for _ in range(2):
        party = Party(EtcdBackend.configure(settings, client, timers=SystemTimers()))
        _, contender, snapshot = party.enqueue("q")
        told = threading.Event()
        party.backend.watch(contender, snapshot.revision, lambda _, told=told: told.set())  # type: ignore[misc]
        assert party.backend.evict(contender).result(BOUND)
        assert told.wait(BOUND)
        party.backend.close().result(BOUND)
        assert party.info.id not in leases(etcd)


def test_closing_ends_after_the_answers_that_are_being_told(
    etcd: Etcd, join: Join, root: str
) -> None:
    with FaultProxy(etcd.host, etcd.port) as proxy:
        backend = join(f"etcd://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=60s").backend
        assert isinstance(backend, EtcdBackend)
        proxy.black_hole()
        told = threading.Event()

        def tell(_: object) -> None:
            time.sleep(0.5)  # what a callback takes on a busy machine
            told.set()

        backend.snapshot("q").add_done_callback(tell)
        backend._lease = 0  # nothing to revoke, which would be waited for
        backend.close().result(BOUND)
        assert told.is_set()


@pytest.mark.parametrize("seconds", [0.0, 0.2, 1.5])
def test_a_process_that_does_not_close_its_client_leaves_nothing_behind(
    etcd: Etcd, root: str, seconds: float
) -> None:
    url = etcd.url_for(root, ttl="3s")
    ended = subprocess.run(
        [sys.executable, "-c", LEAVE, url, str(seconds)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout.strip()
    assert ended.stdout.strip() not in leases(etcd)
    complaints = ended.stderr.splitlines()
    if seconds:  # for a heartbeat, which a busy machine may send late
        complaints = [line for line in complaints if "is in doubt" not in line]
    assert not complaints


def test_the_exit_waits_once_for_a_silent_server_however_many_clients_it_has(
    tmp_path: Path,
) -> None:
    with (
        EtcdServer(tmp_path) as server,
        subprocess.Popen(
            [sys.executable, "-c", LEAVE_TWENTY, server.url_for("/exit")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as leaving,
    ):
        assert leaving.stdout is not None
        assert leaving.stdout.readline() == "ready\n"
        server.pause()
        began = time.monotonic()
        leaving.communicate(timeout=60)
        assert time.monotonic() - began < 20  # 2 s each, one after the other, would be 40
        assert leaving.returncode == 0


#: Does what code for daemons does, after it has connected.
CLOSE_ALL = """
import os, sys, coordlock
client = coordlock.connect(sys.argv[1], ttl="2s", request_timeout="1s")
grant = client.lock("q").acquire(30)
os.closerange(3, 256)
while True:
    try:
        client.lock("r").try_acquire()
    except coordlock.BackendUnavailable:
        break
grant.lost.wait(30)
print(grant.state, flush=True)
os._exit(0)  # gRPC would abort
"""


def test_a_client_whose_files_were_closed_fails_and_loses_its_locks(etcd: Etcd, root: str) -> None:
    command = [sys.executable, "-c", CLOSE_ALL, etcd.url_for(root)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "GrantState.LOST\n"), ended.stderr
