"""A fleet moves from another library's locks to coordlock's, one process at a time, at work."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from coordlock.testing.waiting import eventually
from testbed.servers.redis import Redis
from testbed.servers.zookeeper import ZooKeeper

#: Seconds within which each process enters a few times, however loaded the machine is.
BOUND = 60.0
#: How often each process enters before the next one is replaced.
ENTRIES = 3
#: So many processes: one of the old and one of the new, for a while.
SIZE = 2

#: A worker. Before this stand the lines that make `entered`, a context manager.
WORK = """
import os, signal, sys, time

inside, entries = sys.argv[1:]
goes_on = True

def end(*_):
    global goes_on
    goes_on = False

signal.signal(signal.SIGTERM, end)
while goes_on:
    with entered():
        os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # FileExistsError: another is inside
        time.sleep(0.002)
        os.unlink(inside)
    with open(entries, "a") as file:
        file.write("x")
    time.sleep(0.01)
"""

REDIS_PY = """
import redis
store = redis.Redis.from_url({server!r})
def entered():
    return store.lock("report", timeout=30, sleep=0.01)
"""

KAZOO = """
import kazoo.client
store = kazoo.client.KazooClient(hosts={server!r}, timeout=40)
store.start()
def entered():
    return store.Lock("{root}/report")
"""

FILELOCK = """
import filelock
def entered():
    return filelock.FileLock({file!r}, poll_interval=0.01)
"""

COORDLOCK = """
import coordlock
client = coordlock.connect({url!r})
def entered():
    return client.lock("report")
"""

#: The same order in each process, or two of them wait for each other.
BOTH = """
import contextlib, coordlock, filelock
client = coordlock.connect({url!r})
@contextlib.contextmanager
def entered():
    with filelock.FileLock({file!r}, poll_interval=0.01), client.lock("report"):
        yield
"""


class Fleet:
    """Processes that enter one after the other, each in a program's way."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[tuple[subprocess.Popen[str], Path]] = []
        self._started = 0

    def move_to(self, program: str) -> None:
        """Replace each process by one of ``program``, as a rolling deploy does."""
        for _ in range(SIZE):
            if len(self._running) == SIZE:
                self.end(*self._running.pop(0))
            self._start(program)
            for process, entries in self._running:
                before = _size(entries)
                eventually(
                    lambda: process.poll() is not None or _size(entries) >= before + ENTRIES,  # noqa: B023
                    within=BOUND,
                )
                assert process.poll() is None, process.communicate()[1]

    def _start(self, program: str) -> None:
        self._started += 1
        entries = self._folder / f"entries-{self._started}"
        process = subprocess.Popen(
            [sys.executable, "-c", program + WORK, self._folder / "inside", entries],
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.append((process, entries))

    def end(self, process: subprocess.Popen[str], _: Path) -> None:
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0, process.communicate()[1]
        process.communicate()

    @contextmanager
    def at_work(self) -> Iterator[Fleet]:
        """End gracefully what runs at the end; kill it where something has failed."""
        with ExitStack() as stack:
            stack.callback(self._kill)
            yield self
            while self._running:
                self.end(*self._running.pop())

    def _kill(self) -> None:
        for process, _ in self._running:
            process.kill()
            process.communicate()


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _move(folder: Path, programs: Sequence[str]) -> None:
    with Fleet(folder).at_work() as fleet:
        for program in programs:
            fleet.move_to(program)


@pytest.mark.redis
def test_a_fleet_moves_from_redis_py_one_process_at_a_time(
    redis: Redis, root: str, tmp_path: Path
) -> None:
    url = redis.url_for(root, compat="redis-py", ttl="60s")
    alone = redis.url_for(root, ttl="60s")
    old = REDIS_PY.format(server=redis.url)
    steps = [old, *(COORDLOCK.format(url=one) for one in (url, alone))]
    _move(tmp_path, steps)


@pytest.mark.zookeeper
def test_a_fleet_moves_from_kazoo_one_process_at_a_time(
    zookeeper: ZooKeeper, root: str, tmp_path: Path
) -> None:
    server = urlsplit(zookeeper.url).netloc
    old = KAZOO.format(server=server, root=root)
    new = COORDLOCK.format(url=f"zookeeper://{server}{root}?ttl=60")
    _move(tmp_path, [old, new])


def test_a_fleet_moves_from_filelock_by_a_release_that_holds_both(tmp_path: Path) -> None:
    places = {
        "file": str(tmp_path / "report.lock"),
        "url": f"local://{tmp_path}/state?request_timeout=30s",
    }
    _move(tmp_path, [text.format(**places) for text in (FILELOCK, BOTH, COORDLOCK)])
