"""The counter: growth over reboots, power cuts, crashes and damage."""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coordlock_local
import pytest
from coordlock_local.counter import Counter
from coordlock_local.directory import Directory
from coordlock_local.errors import Busy
from coordlock_local.flock import holder

from coordlock.errors import BackendError
from tests.unit.signals import moments


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory.prepare(str(tmp_path / "state"))


def counter_of(directory: Directory, boot: str = "boot") -> Counter:
    return Counter(Directory(directory.root, boot=boot))


def take(counter: Counter, times: int = 1) -> list[int]:
    return [counter.hold(counter.take) for _ in range(times)]


def test_tokens_follow_each_other_and_start_at_the_clock(directory: Directory) -> None:
    before = time.time_ns() // 1000
    first, *rest = take(counter_of(directory), 10)
    assert before < first <= time.time_ns() // 1000 + 1
    assert rest == list(range(first + 1, first + 10))


def test_few_tokens_wait_for_the_disk(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    take(counter_of(directory), 1000)
    assert len(synced) == 1


def test_without_a_boot_id_every_token_is_on_the_disk(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    first, *rest = take(counter_of(directory, ""), 5)
    assert rest == list(range(first + 1, first + 5))
    assert len(synced) == 5


@pytest.mark.parametrize("seed", range(20))
def test_no_token_repeats_after_power_cuts(
    directory: Directory, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A power cut leaves the file as of any write since its last fsync.

    Between, processes are killed at any call, so that an fsync may never happen.
    """
    chance = random.Random(seed)
    states = [b""]  # what the disk may have: the last that was synced, and all since
    monkeypatch.setattr("coordlock_local.counter._RESERVED_TOKENS", 5)

    class Killed(BaseException):
        pass

    pwrite = os.pwrite

    def write(descriptor: int, data: bytes, offset: int) -> int:
        if chance.random() < 0.05:
            raise Killed
        written = pwrite(descriptor, data, offset)
        states.append(data)
        return written

    def sync(descriptor: int) -> None:
        if chance.random() < 0.3:
            raise Killed
        del states[:-1]

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fsync", sync)
    tokens: list[int] = []
    for boot in range(30):
        for _ in range(chance.randrange(20)):
            try:
                tokens += take(counter_of(directory, f"boot{boot}"))
            except Killed:
                continue
        if states != [b""]:
            states[:] = [chance.choice(states)]
            Path(directory.counter).write_bytes(states[0])
    assert len(tokens) > 50
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("damage", [b"\0" * 64, b"garbage\n", b"3 2 3", b"\xff" * 10, None])
def test_a_damaged_counter_is_never_guessed_at(directory: Directory, damage: bytes | None) -> None:
    counter = counter_of(directory)
    [last] = take(counter)
    flipped = bytearray(Path(directory.counter).read_bytes())
    flipped[10] ^= 1
    Path(directory.counter).write_bytes(flipped if damage is None else damage)
    with pytest.raises(BackendError, match="damaged"):
        take(counter)
    os.unlink(directory.counter)
    assert take(counter)[0] > last


def test_a_held_counter_is_busy_and_free_again_after_an_error(directory: Directory) -> None:
    counter = counter_of(directory)
    with pytest.raises(ZeroDivisionError):
        counter.hold(lambda _: 1 // 0)
    with pytest.raises(Busy):
        counter.hold(lambda _: take(counter_of(directory)))
    assert take(counter)


def test_ctrl_c_at_any_moment_leaves_the_counter_free(directory: Directory) -> None:
    """For other threads too: it would be taken from them until the process ends."""
    counter = counter_of(directory)
    with ThreadPoolExecutor(1) as pool:
        for strike in moments(15, coordlock_local):
            strike(lambda: take(counter))
            assert pool.submit(take, counter).result(30)


def test_who_has_locked_the_counter_can_be_named(directory: Directory) -> None:
    counter = counter_of(directory)
    take(counter)
    assert holder(directory.counter) == 0
    assert counter.hold(lambda _: holder(directory.counter)) == os.getpid()
    with open(directory.counter, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holder(directory.counter) == os.getpid()
        with pytest.raises(Busy):
            take(counter)
    assert take(counter)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_waits_until_the_counter_is_free(directory: Directory) -> None:
    """Else the child would inherit the lock, and keep it if the parent is killed inside."""
    counter = counter_of(directory)
    inside, leave = threading.Event(), threading.Event()

    def stay(_: int) -> None:
        inside.set()
        leave.wait(30)

    def hold() -> None:
        counter.hold(stay)

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0 if take(counter) else 1)
        statuses.append(os.waitpid(child, 0)[1])

    statuses: list[int] = []
    holding, forking = threading.Thread(target=hold), threading.Thread(target=fork)
    holding.start()
    assert inside.wait(30)
    forking.start()
    forking.join(0.2)
    assert statuses == []
    leave.set()
    forking.join(30)
    holding.join(30)
    assert statuses == [0]


def test_a_system_that_loses_its_boot_id_and_finds_it_again_goes_on(directory: Directory) -> None:
    tokens = [
        take(counter_of(directory, boot))[0]
        for boot in ("0449fb6e-01f6-4baa-bcde-8bfa875fbe9e", "", "", "short", "")
    ]
    assert tokens == sorted(set(tokens))
