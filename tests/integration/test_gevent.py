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


@pytest.fixture(params=["memory", "local", "etcd", "zookeeper", "redis"])
def url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory://"
    if request.param == "local":
        return f"local://{tmp_path}?request_timeout=30s"
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
