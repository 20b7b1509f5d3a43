"""Sessions in one process: several clients, ends, removals, what is left behind."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from coordlock_local import LocalBackend

from coordlock.backend import SessionInfo
from coordlock.errors import AuthenticationFailed, BackendError, ConfigurationError, SessionLost
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry
from coordlock.testing.waiting import eventually
from tests.integration.local.conftest import BOUND, OWNER, Party


def _open_descriptors(root: str) -> list[str]:
    """What this process has open of ``root``, and the notices that it ordered."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # that of the listing itself
            continue
        if path.startswith(root) or "inotify" in path or "eventfd" in path:
            found.append(path)
    return found


def test_two_clients_of_one_process_are_two_sessions(party: Callable[..., Party]) -> None:
    one, two = party(), party()
    first, _, _ = one.enqueue()
    second, me, snapshot = two.enqueue()
    [ahead] = snapshot.before(me)
    assert (ahead.session, me.session) == (one.info.id, two.info.id)
    told = two.departure(ahead)
    one.backend.close().result(BOUND)
    assert told.wait(BOUND)
    assert two.ids() == [second.id]
    assert first.id != second.id


def test_closing_one_client_leaves_the_other_of_the_process_alive(
    party: Callable[..., Party],
) -> None:
    one, two, three = party(), party(), party()
    entry, _, _ = one.enqueue()
    two.enqueue("another")
    two.backend.close().result(BOUND)
    assert three.ids() == [entry.id]
    assert one.backend.heartbeat().result(BOUND) == float("inf")


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
    assert len(_open_descriptors(root)) == 4  # two sessions, an inotify and its waker
    one.backend.close().result(BOUND)
    two.backend.close().result(BOUND)
    assert _open_descriptors(root) == []
    assert not [path for path in Path(root).rglob("*") if path.is_file() and path.name != "counter"]


def test_an_uncontended_lock_needs_no_thread_and_one_descriptor(
    party: Callable[..., Party], root: str
) -> None:
    before = threading.active_count()
    one = party()
    entry, _, _ = one.enqueue()
    assert threading.active_count() == before
    assert len(_open_descriptors(root)) == 1
    assert one.backend.withdraw(entry).result(BOUND)


def test_tokens_grow_after_everybody_has_gone_and_come_back(root: str) -> None:
    tokens = []
    for _ in range(5):
        one = Party(root)
        tokens += [one.enqueue()[1].order, one.enqueue("another")[1].order]
        one.backend.close().result(BOUND)
    assert tokens == sorted(set(tokens))


def test_tokens_grow_even_after_the_directory_was_removed(root: str) -> None:
    one = Party(root)
    before = one.enqueue()[1].order
    one.backend.close().result(BOUND)
    shutil.rmtree(root)
    two = Party(root)
    assert two.enqueue()[1].order > before
    two.backend.close().result(BOUND)


def test_a_client_whose_directory_was_removed_is_told_and_starts_anew(
    party: Callable[..., Party], root: str
) -> None:
    one = party()
    _, held, _ = one.enqueue()
    told = one.departure(held)
    shutil.rmtree(root)
    assert told.wait(BOUND)
    with pytest.raises(SessionLost, match="removed"):
        one.backend.heartbeat().result(BOUND)
    assert one.lost.is_set()
    old = one.info
    one.info = one.open()
    assert one.info.id != old.id
    assert one.enqueue()[1].order > held.order


def test_enqueueing_after_the_directory_was_removed_and_made_again_loses_the_session(
    party: Callable[..., Party], root: str
) -> None:
    one = party()
    shutil.rmtree(root)
    two = party()
    with pytest.raises(SessionLost):
        one.backend.enqueue(Entry("q", "a" * 32, Mode.EX, OWNER)).result(BOUND)
    assert one.lost.is_set()
    assert two.ids() == []


def test_a_session_whose_file_was_removed_is_dead_to_itself_too(
    party: Callable[..., Party], root: str
) -> None:
    one = party()
    os.unlink(Path(root) / "sessions" / one.info.id)
    with pytest.raises(SessionLost):
        one.backend.enqueue(Entry("q", "a" * 32, Mode.EX, OWNER)).result(BOUND)
    assert one.ids() == []


def test_a_holder_whose_program_closed_all_descriptors_is_told_of_its_loss(
    party: Callable[..., Party], root: str
) -> None:
    one = party()
    _, held, _ = one.enqueue()
    told = one.departure(held)
    assert not told.is_set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            path = os.readlink(f"/proc/self/fd/{name}")
            if path.startswith(root) or "inotify" in path or "eventfd" in path:
                os.close(int(name))
    two = party()
    assert two.ids() == []
    assert told.wait(BOUND)
    with pytest.raises(SessionLost):
        one.backend.heartbeat().result(BOUND)
    assert one.lost.is_set()


def test_an_interrupted_enqueue_is_undone_by_its_withdrawal(
    party: Callable[..., Party], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = party()
    entry = Entry("q", "a" * 32, Mode.EX, OWNER)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", interrupt)
        with pytest.raises(KeyboardInterrupt):
            one.backend.enqueue(entry)
    assert os.listdir(Path(root) / "queues" / "q") == [f".{entry.id}-{one.info.id}"]
    assert one.ids() == []
    one.backend.withdraw(entry).result(BOUND)
    assert os.listdir(Path(root) / "queues") == []


def test_many_threads_of_one_process_get_tokens_in_order(party: Callable[..., Party]) -> None:
    parties = [party(), party()]
    tokens: list[int] = []

    def work(one: Party) -> None:
        for _ in range(50):
            entry, me, _ = one.enqueue()
            tokens.append(me.order)
            one.backend.withdraw(entry).result(BOUND)

    threads = [threading.Thread(target=work, args=[parties[n % 2]]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(tokens)) == 400
    assert parties[0].ids() == []
    eventually(lambda: parties[0].backend.queues().result(BOUND) == [])


def test_a_file_of_another_program_in_a_queue_is_no_contender(
    party: Callable[..., Party], root: str
) -> None:
    one = party()
    entry, _, _ = one.enqueue()
    for name in ("README", ".hidden", "0", "9" * 19, "0" * 19 + "-lock-x"):
        (Path(root) / "queues" / "q" / name).write_text("")
    (Path(root) / "queues" / "stray").write_text("")
    assert one.ids() == [entry.id]
    assert one.backend.queues().result(BOUND) == ["q"]


def test_long_names_that_begin_alike_are_different_queues(party: Callable[..., Party]) -> None:
    one = party()
    names = ["x" * 254 + "a", "x" * 254 + "b", "🔒" * 63, "x" * 140, "x" * 141]
    for name in names:
        _, me, snapshot = one.enqueue(name)
        assert snapshot.contenders == (me,)
    assert sorted(one.backend.queues().result(BOUND)) == sorted(names)


def test_the_directory_is_private(party: Callable[..., Party], root: str) -> None:
    one = party()
    one.enqueue()
    for path in (Path(root), *Path(root).rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


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


def test_a_directory_that_is_a_file_is_refused_with_advice(root: str) -> None:
    Path(root).write_text("")
    with pytest.raises(BackendError, match="choose another directory"):
        Party(root)


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
    for name in ("mkdir", "write", "pwrite", "rename"):

        def refuse(*arguments: object) -> None:
            raise OSError(number, os.strerror(number), "somewhere")

        with monkeypatch.context() as patched:
            patched.setattr(os, name, refuse)
            with pytest.raises(kind, match=advice):
                one.backend.enqueue(entry).result(BOUND)
    assert one.ids() == []
    one.backend.withdraw(entry).result(BOUND)
    assert one.enqueue()[1].order > last


def test_describing_names_the_directory(root: str) -> None:
    backend = LocalBackend(root)
    info = backend.describe().result(BOUND)
    assert info.service == "local"
    assert info.endpoints == (root,)
    assert info.warnings == ()
    assert isinstance(backend.open(_Deaf()).result(BOUND), SessionInfo)
    backend.close().result(BOUND)


class _Deaf:
    def suspect(self, reason: str) -> None: ...

    def recovered(self) -> None: ...

    def lost(self, reason: str) -> None: ...
