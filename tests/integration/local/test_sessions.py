"""Sessions in one process: several clients, ends, removals, what is left behind."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from coordlock_local.slots import Slot, Slots

import coordlock
from coordlock.backend import Expect, Put
from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    ConfigurationError,
    Evicted,
    LockLost,
    SessionLost,
)
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry
from coordlock.testing.waiting import eventually
from testbed.descriptors import open_descriptors
from tests.integration.local.conftest import BOUND, OWNER, Party


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no message reports is found within a moment in place of five seconds."""
    monkeypatch.setattr("coordlock_local.listening._INTERVAL_S", 0.2)


def _open_descriptors(root: str) -> list[str]:
    """What this process has open of ``root``."""
    return [one for one in open_descriptors() if root in one]


def test_code_that_reads_the_directory_in_the_same_process_takes_no_lock_away(
    party: Callable[..., Party], root: str, tmp_path: Path
) -> None:
    # POSIX record locks would be dropped by this, unseen: they are not what is used.
    one, two = party(), party()
    entry, _, _ = one.enqueue()
    with tarfile.open(tmp_path / "backup.tar", "w") as backup:
        backup.add(root)
    assert two.ids() == [entry.id]
    assert one.backend.heartbeat().exception(BOUND) is None


def test_nothing_is_left_open_after_closing(
    party: Callable[..., Party], root: str, no_leaks: None
) -> None:
    one, two = party(), party()
    _, ahead, _ = one.enqueue()
    two.enqueue()
    two.departure(ahead)
    # A file and a pipe of each session, and the pipe of the one that is waited for.
    eventually(lambda: len(_open_descriptors(root)) == 5)
    one.backend.close().result(BOUND)
    two.backend.close().result(BOUND)
    assert _open_descriptors(root) == []
    left = {path.name for path in Path(root).rglob("*") if path.is_file()}
    assert left == {"counter"}


def test_an_uncontended_lock_needs_no_thread_and_two_descriptors(
    party: Callable[..., Party], root: str
) -> None:
    threads = threading.active_count()
    one = party()
    entry, _, _ = one.enqueue()
    assert threading.active_count() == threads
    assert len(_open_descriptors(root)) == 2
    assert one.backend.withdraw([entry]).result(BOUND)


def test_tokens_grow_even_after_the_directory_was_removed(root: str) -> None:
    one = Party(root)
    before = one.enqueue()[1].order
    one.backend.close().result(BOUND)
    shutil.rmtree(root)
    two = Party(root)
    assert two.enqueue()[1].order > before
    two.backend.close().result(BOUND)


def _removed(root: str) -> None:
    shutil.rmtree(root)


def _moved(root: str) -> None:
    os.rename(root, f"{root}-old")


def _moved_with_its_parent(root: str) -> None:
    parent = os.path.dirname(root)
    os.rename(parent, f"{parent}-old")


GONE = pytest.mark.parametrize("gone", [_removed, _moved, _moved_with_its_parent])


@GONE
def test_a_client_whose_directory_has_gone_is_told_and_starts_anew(
    party: Callable[..., Party], root: str, gone: Callable[[str], None]
) -> None:
    one = party()
    _, held, _ = one.enqueue()
    told = one.departure(held)
    gone(root)
    eventually(lambda: told.is_set() or one.lost.is_set())
    with pytest.raises(SessionLost):
        one.backend.heartbeat().result(BOUND)
    assert one.lost.is_set()
    old = one.info
    one.info = one.open()
    assert one.info.id != old.id
    assert one.enqueue()[1].order > held.order


@GONE
def test_of_two_clients_around_a_directory_that_was_made_again_the_later_one_holds(
    root: str, gone: Callable[[str], None]
) -> None:
    """And no token goes back: the former client gets its next one from the new directory."""
    with coordlock.connect(f"local://{root}?request_timeout=30s") as former:
        held = former.lock("x").acquire(timeout=BOUND)
        gone(root)
        with coordlock.connect(f"local://{root}?request_timeout=30s") as later:
            grant = later.lock("x").acquire(timeout=BOUND)
            assert grant.token > held.token
            assert former.lock("x").try_acquire() is None
            assert held.lost.wait(BOUND)
            with pytest.raises(LockLost, match=r"moved|removed"):
                held.check()
            assert former.lock("y").acquire(timeout=BOUND).token > grant.token
            assert not held.release()
            grant.check()


def test_a_session_whose_file_was_removed_is_dead_to_itself_too(
    party: Callable[..., Party], root: str
) -> None:
    one = party()
    os.unlink(Path(root) / "sessions" / one.info.id)
    with pytest.raises(SessionLost):
        one.backend.enqueue([Entry("q", "a" * 32, Mode.EX, OWNER)]).result(BOUND)
    assert one.ids() == []


def test_a_contender_whose_session_is_dead_to_others_guards_no_write(
    party: Callable[..., Party], root: str
) -> None:
    """Something may have cleared old files away; the holder learns of it within five seconds."""
    one, two = party(), party()
    _, held, _ = one.enqueue()
    os.unlink(Path(root) / "sessions" / one.info.id)
    _, next, snapshot = two.enqueue()
    assert snapshot.contenders == (next,)
    for request in (
        one.backend.write([Put("/app/a", b"past")], [held]),
        one.backend.read("/app/a", guard=held),
    ):
        assert isinstance(request.exception(BOUND), Evicted)
    assert two.backend.write([Expect("/app/a", 0)], [next]).exception(BOUND) is None


def test_a_session_that_is_lost_while_its_watcher_sleeps_leaves_no_thread(
    party: Callable[..., Party], root: str, no_leaks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlock_local.listening._INTERVAL_S", 0.05)
    one = party()
    entry, mine, _ = one.enqueue()
    gone = one.departure(mine)
    assert one.backend.withdraw([entry]).result(BOUND)
    assert gone.wait(BOUND)
    os.unlink(Path(root) / "sessions" / one.info.id)
    with pytest.raises(SessionLost):
        one.backend.heartbeat().result(BOUND)


def test_a_holder_whose_program_closed_all_descriptors_is_told_of_its_loss(
    party: Callable[..., Party], root: str
) -> None:
    one = party()
    _, held, _ = one.enqueue()
    one.departure(held)
    assert not one.lost.is_set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            path = os.readlink(f"/proc/self/fd/{name}")
            if path.startswith(root):
                os.close(int(name))
    two = party()
    assert two.ids() == []
    assert one.lost.wait(BOUND)
    with pytest.raises(SessionLost):
        one.backend.heartbeat().result(BOUND)
    assert one.lost.is_set()


def test_an_interrupted_enqueue_is_undone_by_its_withdrawal(
    party: Callable[..., Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come before and after each write; the last is the one that makes a contender."""
    one, other = party(), party()
    one.backend.withdraw([one.enqueue()[0]]).result(BOUND)  # the file is begun
    write = os.pwrite
    seen = []
    for at in count():
        numbers = count()

        def interrupted(*arguments: Any, numbers: Iterator[int] = numbers, at: int = at) -> int:
            number = next(numbers)
            if number == at // 2 and at % 2 == 0:
                raise KeyboardInterrupt
            written = write(*arguments)
            if number == at // 2:
                raise KeyboardInterrupt
            return written

        entry = Entry("q", f"{at:032x}", Mode.EX, OWNER)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", interrupted)
            with suppress(KeyboardInterrupt):
                one.backend.enqueue([entry])
        seen.append(other.ids() == [entry.id])
        assert one.backend.withdraw([entry]).result(BOUND) is seen[-1]
        assert other.ids() == []
        if at // 2 >= next(numbers):  # there was no such write
            break
    assert seen == [False] * 5 + [True, True]  # the token, the record, the index


def test_a_file_of_another_program_among_the_queues_is_no_queue(
    party: Callable[..., Party], root: str
) -> None:
    one = party()
    entry, _, _ = one.enqueue()
    queues = Path(root) / "queues"
    for name, content in (("README", "hello"), ("empty", ""), ("long", "x" * 10_000)):
        (queues / name).write_text(content)
    (queues / "folder").mkdir()
    (queues / "dangling").symlink_to("nowhere")
    assert one.ids() == [entry.id]
    assert one.backend.queues().result(BOUND) == ["q"]
    for name in ("README", "long"):
        with pytest.raises(BackendError, match=rf"{name} is damaged.*delete it while no lock"):
            one.enqueue(name)
        with pytest.raises(BackendError, match=f"{name} is damaged"):
            one.ids(name)
    with pytest.raises(BackendError):
        one.enqueue("folder")
    with pytest.raises(BackendError):
        one.enqueue("dangling")
    _, me, snapshot = one.enqueue("empty")
    assert snapshot.contenders == (me,)


def test_a_queue_whose_file_was_removed_is_empty_and_its_holder_is_told(
    party: Callable[..., Party], root: str
) -> None:
    one, two = party(), party()
    entry, held, _ = one.enqueue()
    told = one.departure(held)
    os.unlink(Path(root) / "queues" / "q")
    _, next, snapshot = two.enqueue()
    assert snapshot.contenders == (next,)
    assert told.wait(BOUND)
    assert one.backend.withdraw([entry]).result(BOUND) is False
    assert two.ids() == [next.id]


def test_an_eviction_that_meets_a_release_leaves_the_place_free(
    party: Callable[..., Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: the contender leaves between the evicting process's look and its write."""
    one, two = party(), party()
    entry, me, _ = one.enqueue()
    waiter, _, _ = two.enqueue()
    look, left = Slots.get, list[bool]()

    def look_and_leave(slots: Slots, slot: int) -> int:
        value = look(slots, slot)
        if not left:
            left.append(True)
            assert one.backend.withdraw([entry]).result(BOUND)
        return value

    with monkeypatch.context() as patched:
        patched.setattr(Slots, "get", look_and_leave)
        two.backend.evict(me).result(BOUND)
    assert two.ids() == one.ids() == [waiter.id]
    _, later, _ = one.enqueue()
    assert Slot.of(later).number == Slot.of(me).number
    assert one.backend.write([], [later]).exception(BOUND) is None


def test_a_session_whose_file_was_removed_leaves_its_places_to_nobody(
    party: Callable[..., Party], root: str
) -> None:
    """Its process lives and may be about to write there."""
    one, two = party(), party()
    _, lost, _ = one.enqueue()
    os.unlink(Path(root) / "sessions" / one.info.id)
    taken = [two.enqueue()[1] for _ in range(3)]
    assert Slot.of(lost).number not in {Slot.of(each).number for each in taken}
    assert two.ids() == [each.id for each in taken]


def test_what_a_power_failure_has_left_of_a_queue_counts_for_nothing(
    party: Callable[..., Party], root: str
) -> None:
    """Of the last pages that were written, some came to the disk, in any order."""
    path = Path(root) / "queues" / "q"
    page = 4096
    for kept in itertools.product((False, True), repeat=3):  # the header, the index, the records
        one = party()
        one.enqueue()
        one.enqueue()
        data = bytearray(path.read_bytes())
        for number, is_kept in enumerate(kept):
            if not is_kept:
                end = (number + 1) * page if number < 2 else len(data)
                data[number * page : end] = bytes(end - number * page)
        os.unlink(Path(root) / "sessions" / one.info.id)
        path.write_bytes(data)
        two = party()
        assert two.ids() == [], kept
        again, me, snapshot = two.enqueue()
        assert snapshot.contenders == (me,), kept
        assert two.ids() == [me.id], kept
        assert two.backend.withdraw([again]).result(BOUND)


def test_a_client_that_uses_many_names_leaves_few_files(
    party: Callable[..., Party], root: str
) -> None:
    one = party()
    kept, _, _ = one.enqueue("kept")
    for number in range(400):
        entry, _, _ = one.enqueue(f"name {number}")
        assert one.backend.withdraw([entry]).result(BOUND)
    assert len(os.listdir(Path(root) / "queues")) < 300
    assert one.ids("kept") == [kept.id]
    one.backend.close().result(BOUND)
    assert os.listdir(Path(root) / "queues") == []


def test_a_directory_shared_by_a_group_stays_so_whatever_the_umask(
    party: Callable[..., Party], root: str
) -> None:
    os.mkdir(root)
    os.chmod(root, 0o2770)
    umask = os.umask(0o077)
    try:
        party().enqueue()
    finally:
        os.umask(umask)
    for path in Path(root).rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o2770 if path.is_dir() else 0o660), path


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_directory_writable_for_everybody_is_refused(root: str, mode: int) -> None:
    os.mkdir(root)
    os.chmod(root, mode)
    with pytest.raises(ConfigurationError, match="writable for everybody"):
        Party(root)


@pytest.mark.parametrize("file", ["queues/q", "counter"])
def test_a_full_disk_is_named_by_the_directory_that_needs_room(
    party: Callable[..., Party], root: str, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    one, write = party(), os.pwrite

    def refuse(descriptor: int, data: bytes, offset: int) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(file):
            raise OSError(28, os.strerror(28))
        return write(descriptor, data, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        with pytest.raises(BackendError, match=f"{root}: No space left.* free some space"):
            one.enqueue()
    assert one.enqueue()[2].contenders


def test_a_value_that_finds_no_room_leaves_the_former_one_and_no_other_file(
    party: Callable[..., Party], root: str
) -> None:
    one = party()
    _, me, _ = one.enqueue()
    one.backend.publish(me, b"former", 1).result(BOUND)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited[1]))
    try:
        refused = one.backend.publish(me, bytes(10_000), 2).exception(BOUND)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert isinstance(refused, BackendError)
    assert f"{root}: File too large" in str(refused)
    assert len(os.listdir(Path(root) / "values")) == 1
    [found] = one.backend.snapshot("q", owners=True).result(BOUND).contenders
    assert (found.value, found.version) == (b"former", 2)


@pytest.mark.parametrize(
    ("number", "kind", "advice"),
    [
        (28, BackendError, "free some space"),
        (30, BackendError, "choose another directory"),
        (24, BackendError, "ulimit -n"),
        (13, AuthenticationFailed, "must be readable and writable for user"),
    ],
    ids=["ENOSPC", "EROFS", "EMFILE", "EACCES"],
)
def test_a_refusal_of_the_system_says_what_to_do_and_leaves_nothing(
    party: Callable[..., Party],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[BackendError],
    advice: str,
) -> None:
    one = party()
    last = one.enqueue("another")[1].order
    entry = Entry("q", "a" * 32, Mode.EX, OWNER)
    for name in ("open", "ftruncate", "pread", "pwrite"):

        def refuse(*arguments: object) -> None:
            raise OSError(number, os.strerror(number), "somewhere")

        with monkeypatch.context() as patched:
            patched.setattr(os, name, refuse)
            with pytest.raises(kind, match=advice):
                one.backend.enqueue([entry]).result(BOUND)
    assert one.ids() == []
    one.backend.withdraw([entry]).result(BOUND)
    assert one.enqueue()[1].order > last
