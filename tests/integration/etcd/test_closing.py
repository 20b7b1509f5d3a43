"""Clients that are given, and processes that end without closing theirs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import grpc
import pytest
from coordlock_etcd import EtcdBackend

from coordlock.config import configure
from coordlock.testing.backend_contract import BOUND, Party
from tests.integration.etcd.conftest import Join
from tests.servers.etcd import Etcd

LEAVE = """
import sys, coordlock
client = coordlock.connect(sys.argv[1])
client.lock("q").acquire(30)
print(client.contenders("q")[0].session)
"""


class EtcdClient:
    """What is used of an ``etcd3.Etcd3Client``: a channel, and the metadata of its calls.

    The library itself cannot be installed beside a current protobuf; the install matrix has it.
    """

    def __init__(self, etcd: Etcd) -> None:
        self.channel = grpc.insecure_channel(f"{etcd.host}:{etcd.port}")
        self.metadata = None


@pytest.fixture
def client(etcd: Etcd) -> Iterator[EtcdClient]:
    client = EtcdClient(etcd)
    yield client
    client.channel.close()


def leases(etcd: Etcd) -> list[str]:
    return etcd.etcdctl("lease", "list").split()[3:]


def test_a_given_clients_channel_is_used_and_not_closed(
    etcd: Etcd, client: EtcdClient, root: str, no_leaks: None
) -> None:
    settings = configure(f"etcd://ignored{root}")
    for _ in range(2):
        party = Party(EtcdBackend.configure(settings, client))
        _, contender, snapshot = party.enqueue("q")
        told = threading.Event()
        party.backend.watch(contender, snapshot.revision, told.set)
        assert party.backend.evict(contender).result(BOUND)
        assert told.wait(BOUND)
        party.backend.close().result(BOUND)
        assert party.info.id not in leases(etcd)


def test_a_session_ends_where_no_thread_can_be_started(
    etcd: Etcd, join: Join, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fault: what Python 3.12 and later raise at the interpreter's end.
    party = join(etcd.url_for(root, ttl="60s"))
    _, contender, snapshot = party.enqueue("q")
    party.backend.watch(contender, snapshot.revision, lambda: None)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        party.backend.close().result(BOUND)
    assert party.info.id not in leases(etcd)


def test_a_process_that_does_not_close_its_client_leaves_nothing_behind(
    etcd: Etcd, root: str
) -> None:
    url = etcd.url_for(root, ttl="60s")
    ended = subprocess.run(
        [sys.executable, "-c", LEAVE, url], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.strip()
    assert ended.stdout.strip() not in leases(etcd)
    assert ended.stderr == ""
