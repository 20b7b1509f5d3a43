"""Under gevent: greenlets contend, wait, lose and close, and none of them stops the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import coordlock
from testbed.servers.etcd import Etcd
from testbed.servers.redis import RedisServer
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
    server: Etcd | RedisServer | ZooKeeper = request.getfixturevalue(request.param)
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


#: Greenlets of two clients hand one lock over.
HANDING = """
import gevent.monkey; gevent.monkey.patch_all()
import sys, gevent, coordlock
def work(client):
    for _ in range(5):
        with client.lock("a", timeout=60): pass
with coordlock.connect(sys.argv[1]) as one, coordlock.connect(sys.argv[1]) as two:
    gevent.joinall([gevent.spawn(work, client) for client in [one, two] * 5], raise_error=True)
"""


def test_on_redis_no_greenlet_reads_what_the_selector_of_another_one_has(
    redis: RedisServer, root: str
) -> None:
    url = redis.url_for(root)
    with coordlock.connect(url) as client, client.lock("a"):
        pass  # the root has a state now
    done = subprocess.run(
        [sys.executable, "-c", HANDING, url], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


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
