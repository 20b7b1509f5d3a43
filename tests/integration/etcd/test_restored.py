"""An etcd that is restored from a snapshot, with the client's session in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import coordlock
from coordlock.runtime.log import flush
from coordlock.testing.backend_contract import BOUND
from coordlock.testing.waiting import eventually
from coordlock.types import VersionedValue
from testbed.servers.etcd import EtcdServer

pytestmark = pytest.mark.faults


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "server") as server:
        yield server


@pytest.fixture
def client(server: EtcdServer) -> Iterator[coordlock.Client]:
    with coordlock.connect(server.url_for("/l", ttl="60s")) as client:
        yield client


def restore(server: EtcdServer, snapshot: Path) -> None:
    server.kill()
    shutil.rmtree(server.data)
    options = {
        "name": server.name,
        "data-dir": str(server.data),
        "initial-cluster": f"{server.name}={server.peer_url}",
        "initial-advertise-peer-urls": server.peer_url,
    }
    subprocess.run(
        ["etcdctl", "snapshot", "restore", snapshot, *(f"--{k}={v}" for k, v in options.items())],
        env=os.environ | {"ETCDCTL_API": "3"},
        capture_output=True,
        check=True,
    )
    server.start()


def is_at_version(value: VersionedValue | None, version: int) -> bool:
    return value is not None and value.version == version


@pytest.mark.timeout(180)
def test_a_restored_snapshot_ends_the_grants_that_are_missing_in_it_and_no_others(
    server: EtcdServer,
    client: coordlock.Client,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    snapshot, value = tmp_path / "snapshot", client.value("/data/value")
    kept = client.lock("kept").acquire()
    value.set(b"before")
    with value.observe() as observer:
        server.etcdctl("snapshot", "save", str(snapshot))
        for _ in range(50):
            value.set(b"after")
        missing = client.lock("missing").acquire()
        eventually(lambda: is_at_version(observer.state, 51), within=BOUND)
        restore(server, snapshot)
        assert missing.lost.wait(30)
        # The revisions begin again, at smaller ones.
        eventually(lambda: is_at_version(observer.state, 1), within=BOUND)
    with pytest.raises(coordlock.LockLost, match="evicted"):
        missing.check()
    with client.lock("missing"):
        kept.check()
    kept.release()
    assert flush(30)
    assert caplog.text.count("is in doubt") <= 2, "an outage that ends once it is all known"
