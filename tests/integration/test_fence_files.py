"""The file fence among processes that race, stop, fork and die, and over power cuts and damage."""

from __future__ import annotations

import itertools
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from coordlock.errors import StaleToken
from coordlock.fencing import Marks
from coordlock.fencing.files import FileFence
from coordlock.testing.waiting import eventually
from tests.integration.guarding import RESOURCE


class Process:
    """One of `tests.integration.guarding`."""

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.guarding", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitpid(self.pid, os.WUNTRACED)

    def end(self) -> None:
        with self._process:
            self._process.kill()


@pytest.fixture
def process() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*arguments: object) -> Process:
        started.append(Process(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "fences"


@pytest.fixture
def file(directory: Path) -> Path:
    return directory / RESOURCE


def waits(pid: int, file: Path) -> bool:
    """Whether the process waits for the lock of ``file``."""
    with suppress(FileNotFoundError):
        inode = f":{file.stat().st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            # proc(5): "1: -> FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF" waits for what is above
            fields = line.split()
            if fields[1] == "->" and fields[5] == str(pid) and fields[6].endswith(inode):
                return True
    return False


def wait_until_it_waits(one: Process, file: Path) -> None:
    eventually(lambda: waits(one.pid, file), "it waits for the lock")


# Processes


def test_a_block_ends_with_its_process(
    directory: Path, file: Path, process: Callable[..., Process]
) -> None:
    first = process("guard", directory, 33)
    assert first.line() == "inside"
    second = process("guard", directory, 34)
    wait_until_it_waits(second, file)
    first.signal(signal.SIGKILL)
    assert second.line() == "inside"


def test_ctrl_c_ends_the_wait_and_leaves_nothing_behind(
    directory: Path, file: Path, process: Callable[..., Process]
) -> None:
    first = process("guard", directory, 33)
    assert first.line() == "inside"
    second = process("guard", directory, 34)
    wait_until_it_waits(second, file)
    second.signal(signal.SIGINT)
    # The three standard ones, and the one that lists them.
    assert second.line() == "interrupted 4"
    first.go_on()
    assert first.line() == "outside"
    assert FileFence(directory).marks(RESOURCE) == Marks(exclusive=33)
    FileFence(directory).check(RESOURCE, 33)


def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(
    directory: Path, file: Path, process: Callable[..., Process]
) -> None:
    parent = process("fork", directory, 33)
    child = int(parent.line())
    try:
        waiter = process("guard", directory, 34)
        wait_until_it_waits(waiter, file)
        parent.signal(signal.SIGKILL)
        assert waiter.line() == "inside"
        os.kill(child, 0)  # it lives
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


# Threads


def test_a_guard_inside_of_another_one_is_an_error_and_no_deadlock(directory: Path) -> None:
    fence = FileFence(directory)
    with fence.guard("alice", 33):
        with fence.guard("bob", 33):
            pass
        with pytest.raises(RuntimeError, match="inside of a guard of 'alice'"):
            fence.check("alice", 33)
        with pytest.raises(RuntimeError):
            fence.forget("alice")
        with pytest.raises(RuntimeError):
            FileFence(directory).check("alice", 34)
        assert fence.marks("alice") == Marks(exclusive=33)
    fence.check("alice", 33)


# What is kept


def test_marks_survive_and_are_private(directory: Path, file: Path) -> None:
    FileFence(directory).check(RESOURCE, 34)
    FileFence(directory).check(RESOURCE, 36, shared=True)
    assert FileFence(directory).marks(RESOURCE) == Marks(34, 36)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_bytes()) < 64


@pytest.mark.parametrize(
    ("one", "other"),
    [("x" * 141, "x" * 142), ("a", "A"), ("a/b", "a%2fb"), ("é", "É"), ("..", "."), ("", ".")],
)
def test_no_two_resources_share_a_file_wherever_they_are(
    directory: Path, one: str, other: str
) -> None:
    """On a file system that takes ``a`` for ``A`` too."""
    fence = FileFence(directory)
    fence.check(one, 34)
    assert fence.marks(other) == Marks()
    fence.check(other, 33)
    names = os.listdir(directory)
    assert len({name.lower() for name in names}) == 2
    assert all(len(name) <= 140 for name in names)


def test_a_name_that_leads_elsewhere_is_not_followed(directory: Path, tmp_path: Path) -> None:
    fence = FileFence(directory)
    (directory / "alice").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="alice"):
        fence.check("alice", 33)
    assert not (tmp_path / "elsewhere").exists()


def test_any_flipped_bit_and_any_missing_byte_is_damage(directory: Path, file: Path) -> None:
    fence = FileFence(directory)
    fence.check(RESOURCE, 34)
    good = file.read_bytes()
    bad = [good[:length] for length in range(1, len(good))] + [good + b"\n", good * 2]
    for at in range(len(good)):
        for bit in range(8):
            flipped = bytearray(good)
            flipped[at] ^= 1 << bit
            bad.append(bytes(flipped))
    for data in bad:
        file.write_bytes(data)
        with pytest.raises(OSError, match="damaged"):
            fence.marks(RESOURCE)
    file.write_bytes(good)
    assert fence.marks(RESOURCE) == Marks(exclusive=34)


def test_forgetting_lets_no_two_blocks_run_at_once(directory: Path) -> None:
    """The file goes under those that wait for it, over and over."""
    inside: list[int] = []
    overlaps: list[list[int]] = []
    blocks = itertools.count()

    def work(number: int) -> None:
        fence = FileFence(directory)
        for _ in range(100):
            with fence.guard(RESOURCE, 33):
                inside.append(number)
                time.sleep(0)  # let others in, if the fence does
                if len(inside) > 1:
                    overlaps.append(inside.copy())
                inside.remove(number)
                next(blocks)

    def forget() -> None:
        while working:
            FileFence(directory).forget(RESOURCE)

    working = [threading.Thread(target=work, args=[number]) for number in range(4)]
    forgetting = threading.Thread(target=forget)
    for thread in (*working, forgetting):
        thread.start()
    while working:
        working.pop().join(60)
    forgetting.join(30)
    assert overlaps == []
    assert next(blocks) == 400


# The disk


def test_a_new_token_is_on_the_disk_before_its_block_and_an_equal_one_writes_nothing(
    directory: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fence = FileFence(directory)
    pwrite, fsync = os.pwrite, os.fsync

    def write(descriptor: int, data: bytes, offset: int) -> int:
        calls.append("write")
        return pwrite(descriptor, data, offset)

    def sync(descriptor: int) -> None:
        calls.append(f"sync {os.readlink(f'/proc/self/fd/{descriptor}')}")
        fsync(descriptor)

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fsync", sync)

    def guarded(token: int, shared: bool = False) -> list[str]:
        calls.clear()
        with fence.guard(RESOURCE, token, shared):
            return calls.copy()

    assert guarded(33) == ["write", f"sync {file}", f"sync {directory}", "write"]
    assert guarded(33) == []
    assert guarded(34) == ["write", f"sync {file}", "write"]
    assert guarded(34) == []
    assert guarded(36, shared=True) == ["write", f"sync {file}", "write"]
    assert guarded(35, shared=True) == []
    calls.clear()
    with pytest.raises(StaleToken):
        fence.check(RESOURCE, 33)
    assert calls == []


def test_a_disk_that_fails_keeps_the_block_from_beginning(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one writes it all anew: after a failed fsync, lost pages count as clean."""
    fence = FileFence(directory)
    fence.check(RESOURCE, 33)

    def fail(descriptor: int) -> None:
        raise OSError(5, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="the disk is gone"), fence.guard(RESOURCE, 34):
                raise AssertionError("the block began")
    written: list[bytes] = []
    pwrite = os.pwrite

    def write(descriptor: int, data: bytes, offset: int) -> int:
        written.append(data)
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", write)
    fence.check(RESOURCE, 34)
    assert len(written) == 2


@pytest.mark.parametrize("seed", range(20))
def test_no_block_is_on_the_disk_whose_token_is_not(
    directory: Path, file: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A power cut leaves the file as of any write since its last fsync.

    Between, processes are killed at any call, so that an fsync may never happen.
    """
    chance = random.Random(seed)
    fence = FileFence(directory)
    states = [b""]  # what the disk may have: the last that was synced, and all since
    monkeypatch.setattr("coordlock.fencing.markfile.sync", lambda directory: None)
    pwrite = os.pwrite

    class Killed(BaseException):
        pass

    def write(descriptor: int, data: bytes, offset: int) -> int:
        if chance.random() < 0.1:
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
    acted = {True: 0, False: 0}  # the newest token that had a block, shared and exclusive
    blocks = 0
    for _ in range(30):
        for _ in range(chance.randrange(10)):
            shared = chance.random() < 0.4
            token = max(1, *acted.values()) + chance.randrange(4)
            with suppress(Killed, StaleToken), fence.guard(RESOURCE, token, shared):
                acted[shared] = max(acted[shared], token)
                blocks += 1
        survived = chance.choice(states)
        states[:] = [survived]
        file.write_bytes(survived)
        marks = fence.marks(RESOURCE)
        assert marks.exclusive >= acted[False]
        assert marks.shared >= acted[True]
    assert blocks > 25
