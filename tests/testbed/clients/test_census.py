from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from coordlock_faults.bounds import Bounds
from coordlock_faults.journal import Journal, read
from coordlock_faults.leaks import leaks

from coordlock.settings import Settings
from testbed.clients import census
from testbed.clients.attempt_log import THREADS
from testbed.clients.census import Census


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    monkeypatch.setattr(census, "_PATIENCE", 0.2)
    with Journal(tmp_path / "c1.jsonl", "c1") as journal:
        yield journal


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def start(gate: threading.Event, name: str) -> threading.Thread:
    thread = threading.Thread(target=gate.wait, args=(30,), name=name)
    thread.start()
    return thread


def found(journal: Journal, tmp_path: Path) -> list[str]:
    return [one.what for one in leaks(read([tmp_path / "c1.jsonl"]), Bounds())]


def counted(journal: Journal, *settings: Settings) -> Census:
    one = Census(journal, settings)
    one.write(baseline=True)
    return one


def test_a_thread_that_is_left_is_a_leak(
    journal: Journal, gate: threading.Event, tmp_path: Path
) -> None:
    one = counted(journal)
    thread = start(gate, "coordlock-timers")
    one.repeat()
    assert [what.partition(":")[0] for what in found(journal, tmp_path)] == ["threads of c1"]
    gate.set()
    thread.join()


def test_the_workloads_own_threads_are_not_counted(
    journal: Journal, gate: threading.Event, tmp_path: Path
) -> None:
    one = counted(journal)
    thread = start(gate, f"{THREADS}-loss")
    one.repeat()
    assert found(journal, tmp_path) == []
    gate.set()
    thread.join()


def test_what_goes_in_time_is_no_leak(
    journal: Journal, gate: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(census, "_PATIENCE", 30.0)
    one = counted(journal)
    thread = start(gate, "coordlock-zookeeper-stop")
    timer = threading.Timer(0.3, gate.set)
    timer.name = f"{THREADS}-timer"
    timer.start()
    one.repeat()
    assert not thread.is_alive()
    assert found(journal, tmp_path) == []


def test_a_descriptor_that_is_left_is_a_leak(journal: Journal, tmp_path: Path) -> None:
    one = counted(journal)
    left = os.open(tmp_path, os.O_RDONLY)
    one.repeat()
    os.close(left)
    assert [what.partition(":")[0] for what in found(journal, tmp_path)] == ["descriptors of c1"]


def test_an_etcd_client_may_keep_two_connections_to_each_server_and_no_more(
    journal: Journal, tmp_path: Path
) -> None:
    one = counted(journal, Settings("etcd", ("a:1", "b:1", "c:1")))
    # One of the six is there from the start.
    pipes = [os.pipe() for _ in range(2)]
    one.repeat()
    assert found(journal, tmp_path) == []
    pipes.append(os.pipe())
    one.repeat()
    assert len(found(journal, tmp_path)) == 1
    for descriptor in (end for pipe in pipes for end in pipe):
        os.close(descriptor)
