"""Under gevent: greenlets contend, wait, lose and close, and none of them stops the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import coordlock
from testbed.servers.etcd import Etcd
from testbed.servers.redis import Redis
from testbed.servers.zookeeper import ZooKeeper

WORKER = Path(__file__).with_name("gevent_worker.py")

#: Opens a session over a channel of its own, which it makes after the line that it is given.
GIVEN = """
import gevent.monkey; gevent.monkey.patch_all()
import sys; exec(sys.argv[2])
import grpc, types
from coordlock_etcd import EtcdBackend
from coordlock.backend.config import configure
from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import SystemTimers
from coordlock.testing.backend_contract import Listener
settings = configure(sys.argv[1])
client = types.SimpleNamespace(channel=grpc.insecure_channel(settings.hosts[0]))
try:
    backend = EtcdBackend.configure(settings, client, timers=SystemTimers())
except ConfigurationError as refused:
    print(str(refused).rpartition(": ")[2])
else:
    print(backend.open(Listener()).result(60).ttl)
    backend.close().result(60)
"""


@pytest.fixture(params=["memory", "local", "etcd", "zookeeper", "redis"])
def url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory://"
    if request.param == "local":
        return f"local://{tmp_path}"
    server: Etcd | ZooKeeper | Redis = request.getfixturevalue(request.param)
    return server.url_for(root, ttl="60s")


def test_greenlets_share_locks_with_each_other_and_with_other_processes(url: str) -> None:
    with (
        coordlock.connect(url) as client,
        client.lock("outside") as holding,
        subprocess.Popen(
            [sys.executable, "-m", "gevent.monkey", str(WORKER), url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        if process.stdout.readline() == "waiting\n":
            holding.release()
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        assert output == ("" if url == "memory://" else "closed\n")
        assert "Traceback" not in errors


def test_a_channel_that_was_made_before_grpc_knew_of_gevent_is_refused_with_the_line_to_write(
    etcd: Etcd, root: str
) -> None:
    def run(line: str) -> str:
        command = [sys.executable, "-c", GIVEN, etcd.url_for(root, ttl="60s"), line]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True
        ).stdout.strip()

    line = run("pass")
    assert "init_gevent()" in line
    assert run(line) == "60.0"
