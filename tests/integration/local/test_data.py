"""Data in a state directory: processes that are killed, stopped, evicted and forked in a write."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from coordlock_local import data as data_file

import coordlock
from coordlock import BackendError, BackendUnavailable

BOUND = 60.0
KEYS = [f"/app/{name}" for name in "abc"]

#: Writes three keys at a time, for ever.
WRITER = """
import sys, coordlock
with coordlock.connect(sys.argv[1]) as client:
    with client.lock("data", timeout=60) as grant:
        number = 0 if (found := grant.read("/app/a")) is None else int(found.data)
        print("writes", flush=True)
        while True:
            number += 1
            transaction = grant.transaction()
            for name in "abc":
                transaction.put(f"/app/{name}", b"%d" % number)
            transaction.commit()
"""
#: Stops, in the middle of a write, until it is told to go on.
SLOW = """
import sys, coordlock
from coordlock_local import data
write = data._write
def slow(kept, operations):
    print("inside", flush=True)
    sys.stdin.readline()
    return write(kept, operations)
data._write = slow
with coordlock.connect(sys.argv[1], request_timeout=60) as client:
    with client.lock("data") as grant:
        grant.transaction().put("/app/a", b"slow").commit()
        print("written", flush=True)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"local://{tmp_path}/state?request_timeout=30s"


@pytest.fixture
def client(url: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(url) as client:
        yield client


def started(program: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_a_write_of_several_keys_is_whole_wherever_its_process_is_killed(
    client: coordlock.Client, url: str
) -> None:
    dice, numbers = random.Random(18), [0]
    for _ in range(5):
        with started(WRITER, url) as writer:
            assert line(writer) == "writes"
            time.sleep(dice.random() / 20)
            writer.kill()
        with client.lock("data", timeout=BOUND) as grant:
            values = {found.data for key in KEYS if (found := grant.read(key))}
        assert len(values) <= 1
        numbers += [int(value) for value in values]
    assert numbers == sorted(numbers)
    assert numbers[-1] > 0


def test_a_writer_that_is_stopped_keeps_others_waiting_for_a_while_and_is_named(
    url: str,
) -> None:
    with started(SLOW, url) as slow, coordlock.connect(url, request_timeout=0.5) as client:
        assert line(slow) == "inside"
        slow.send_signal(signal.SIGSTOP)
        try:
            with client.lock("other") as grant:  # locks are not held up
                begun = time.monotonic()
                with pytest.raises(BackendUnavailable, match=f"process {slow.pid}"):
                    grant.transaction().put("/app/b", b"1").commit()
                assert time.monotonic() - begun < BOUND
        finally:
            slow.send_signal(signal.SIGCONT)
        print(file=slow.stdin, flush=True)
        assert line(slow) == "written"
        with client.lock("other") as grant:
            assert grant.read("/app/a") == coordlock.types.VersionedValue(b"slow", 1)


def test_a_foreign_open_and_close_of_the_files_changes_nothing(
    client: coordlock.Client, url: str, tmp_path: Path
) -> None:
    """As a program does that copies its own home: it would take POSIX locks away."""
    stop = threading.Event()

    def copy() -> None:
        while not stop.is_set():
            for name in ("data", "data.lock", "data-journal"):
                file = tmp_path / "state" / name
                if file.exists():
                    with suppress(FileNotFoundError):
                        file.read_bytes()

    def add(client: coordlock.Client, number: int) -> None:
        for _ in range(20):
            with client.lock("number", timeout=BOUND) as grant:
                found = grant.read("/app/n")
                value = int(found.data) if found else 0
                grant.transaction().put("/app/n", b"%d" % (value + 1)).commit()

    with coordlock.connect(url) as other, ThreadPoolExecutor(3) as pool:
        copying = pool.submit(copy)
        try:
            adding = [pool.submit(add, one, 0) for one in (client, other)]
            for call in adding:
                call.result(BOUND)
        finally:
            stop.set()
        copying.result(BOUND)
    with client.lock("number") as grant:
        assert grant.read("/app/n") == coordlock.types.VersionedValue(b"40", 40)


def test_a_child_that_is_forked_during_a_write_does_not_keep_the_data_locked(
    client: coordlock.Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on = threading.Event(), threading.Event()
    write = data_file._write

    def slow(kept: Any, operations: Any) -> int:
        inside.set()
        go_on.wait(BOUND)
        return write(kept, operations)

    monkeypatch.setattr(data_file, "_write", slow)
    with client.lock("data") as grant, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(grant.transaction().put("/app/a", b"1").commit)
        assert inside.wait(BOUND)
        child = os.fork()
        if child == 0:
            time.sleep(BOUND)
            os._exit(0)
        try:
            go_on.set()
            writing.result(BOUND)
            assert grant.read("/app/a") == coordlock.types.VersionedValue(b"1", 1)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_file_that_is_none_of_coordlocks_is_named(url: str, tmp_path: Path) -> None:
    with coordlock.connect(url) as client, client.lock("data") as grant:
        (tmp_path / "state" / "data").write_bytes(b"something else" * 100)
        with pytest.raises(BackendError, match="damaged, or no file of coordlock's"):
            grant.read("/app/a")


class Small(sqlite3.Connection):
    """As on a disk that fills up in the midst of a transaction, which SQLite then ends itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA max_page_count = 8")
        self.execute("PRAGMA cache_size = 1")


def test_a_disk_that_fills_up_during_a_write_is_named_and_nothing_is_written(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with coordlock.connect(url) as client, client.lock("a") as grant:
        grant.transaction().put("/app/x", b"one").commit()
        with monkeypatch.context() as patched:
            patched.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Small))
            with pytest.raises(BackendError, match="free some space") as caught:
                grant.transaction().put("/app/x", b"two" * 50_000).commit()
        assert str(tmp_path / "state" / "data") in str(caught.value)
        found = grant.read("/app/x")
        assert found is not None
        assert found.data == b"one"
