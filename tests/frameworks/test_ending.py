"""Servers that SIGTERM ends while a request holds a lock, or waits for it.

On etcd and ZooKeeper the time-to-live is a minute, so a lock that is free sooner was released.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import coordlock
from coordlock import Client
from coordlock.testing.waiting import eventually
from tests.frameworks.serving import url_of

#: They end the same way whatever the service; ZooKeeper has threads of its own, as etcd has.
pytestmark = pytest.mark.long_on("zookeeper")

BOUND = 60.0
APPS = "tests.frameworks.apps.ending"

Server = tuple["subprocess.Popen[bytes]", Callable[[], "Future[httpx.Response]"]]


@pytest.fixture
def go_on(tmp_path: Path) -> Path:
    """What a request that holds the lock waits for."""
    return tmp_path / "go-on"


@pytest.fixture
def client(shared_url: str) -> Iterator[Client]:
    with coordlock.connect(shared_url) as client:
        yield client


@pytest.fixture
def start(shared_url: str, go_on: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server; its process, and what sends it a request."""
    environment = {**os.environ, "ENDING_URL": shared_url, "ENDING_GO_ON": str(go_on)}
    started: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor() as pool, httpx.Client(timeout=BOUND) as http:

        def run(*command: str) -> Server:
            path = tmp_path / "output"
            line = [sys.executable, "-m", *command]
            with open(path, "wb") as output:
                process = subprocess.Popen(line, env=environment, stdout=output, stderr=output)
            started.append(process)
            url = url_of(process, path)
            return process, lambda: pool.submit(http.get, url)

        yield run
        for process in started:
            process.kill()
            process.wait()


def free(client: Client) -> None:
    eventually(lambda: client.admin.contenders("q") == ())


def test_gunicorn_ends_a_wait_with_the_hook_that_the_page_shows(
    start: Callable[..., Server], client: Client, tmp_path: Path
) -> None:
    hooks = tmp_path / "gunicorn.conf.py"
    hooks.write_text(
        "import signal, coordlock\n"
        "def post_worker_init(worker):\n"
        "    coordlock.release_on_signals(signal.SIGTERM)\n"
    )
    with client.lock("q"):
        server, ask = start(
            *("gunicorn", "--config", str(hooks), "--preload"),
            *("--bind", "127.0.0.1:0", f"{APPS}:wsgi"),
        )
        answer = ask()
        eventually(lambda: len(client.admin.contenders("q")) == 2)
        server.terminate()
        assert answer.result(BOUND).status_code == 503
        assert server.wait(BOUND) == 0
        eventually(lambda: len(client.admin.contenders("q")) == 1)


def test_uvicorn_cancels_a_wait_when_its_patience_is_over(
    start: Callable[..., Server], client: Client
) -> None:
    with client.lock("q"):
        server, ask = start(
            *("uvicorn", "--port", "0", "--timeout-graceful-shutdown", "1", f"{APPS}:asgi")
        )
        ask()
        eventually(lambda: len(client.admin.contenders("q")) == 2)
        server.terminate()
        assert server.wait(BOUND) == -signal.SIGTERM
        eventually(lambda: len(client.admin.contenders("q")) == 1)
