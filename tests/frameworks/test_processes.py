"""Clients at the top of a module, in processes that fork and processes that are spawned."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import coordlock
from coordlock.testing.waiting import eventually

BOUND = 120.0

#: Runs `jobs.book` in a pool of processes; prints how many processes booked.
POOL = """
import multiprocessing, sys
from tests.frameworks.apps import jobs

if __name__ == "__main__":
    method, work, first = sys.argv[1:]
    if first == "used":
        getattr(jobs, work)(-1)
    with multiprocessing.get_context(method).Pool(4) as pool:
        print(len(set(pool.map(getattr(jobs, work), range(40), chunksize=1))))
    getattr(jobs, work)(40)
"""


@pytest.fixture(
    params=[
        "local",
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
    ]
)
def url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    """A root of this test's own on each backend that several processes can share."""
    if request.param == "local":
        return f"local://{tmp_path}{root}?request_timeout=30s"
    server = urlsplit(request.getfixturevalue(request.param).url)
    return f"{request.param}://{server.netloc}{root}"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger"
    path.touch()
    return path


@pytest.fixture
def environment(url: str, ledger: Path) -> dict[str, str]:
    return {**os.environ, "JOBS_URL": url, "JOBS_LEDGER": str(ledger)}


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Starts a server, which is ended after the test; where it writes."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> Path:
        path = tmp_path / f"output{len(started)}"
        line = [sys.executable, "-m", *command]
        with open(path, "wb") as output:
            started.append(subprocess.Popen(line, env=environment, stdout=output, stderr=output))
        return path

    yield run
    for process in started:
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0


def booked(ledger: Path) -> list[int]:
    return sorted(map(int, ledger.read_text().split()))


def free(url: str) -> None:
    with coordlock.connect(url) as client:
        eventually(lambda: client.admin.contenders("ledger") == ())


@pytest.mark.long_on("forkserver", "zookeeper")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pool_of_processes_shares_a_modules_clients(
    environment: dict[str, str], ledger: Path, url: str, method: str
) -> None:
    line = [sys.executable, "-c", POOL, method, "book_either", "unused"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stderr
    assert "forks with" not in done.stderr
    assert booked(ledger) == list(range(41))
    free(url)


def test_a_fork_after_the_first_use_connects_anew(
    environment: dict[str, str], ledger: Path, url: str
) -> None:
    """Where the service's library survives that; else the parent says so when it forks."""
    line = [sys.executable, "-c", POOL, "fork", "book", "used"]
    if url.startswith("etcd:"):
        begin = "import os; from tests.frameworks.apps import jobs"
        program = f"{begin}; jobs.book(1); os.fork() or os._exit(0)"
        line = [sys.executable, "-c", program]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stderr
    if url.startswith("etcd:"):
        assert "this process forks with an open gRPC connection" in done.stderr
        assert "spawn or forkserver" in done.stderr
    else:
        assert "forks with" not in done.stderr
        assert booked(ledger) == list(range(-1, 41))
        free(url)


def test_gunicorn_preloads_an_application_with_a_client(
    start: Callable[..., Path], ledger: Path, url: str
) -> None:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*probe.getsockname())
    output = start(
        *("gunicorn", "--preload", "--workers", "3", "--bind", address),
        "tests.frameworks.apps.web:application",
    )
    eventually(lambda: output.read_text().count("Booting worker") == 3)
    with ThreadPoolExecutor(8) as pool, httpx.Client(timeout=BOUND) as http:
        answers = list(pool.map(lambda n: http.get(f"http://{address}/{n}"), range(40)))
    assert [answer.status_code for answer in answers] == [200] * 40, output.read_text()
    assert booked(ledger) == list(range(40))
    free(url)
