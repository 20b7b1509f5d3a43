"""Processes with another view of the boot id, as in some containers, on one directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from coordlock_local.contenders import Contenders
from coordlock_local.directory import Directory
from coordlock_local.queue import tidy
from coordlock_local.session import LocalSession

from coordlock.errors import BackendError
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner, Snapshot


def view(root: Path, boot: str) -> tuple[Directory, LocalSession]:
    directory = Directory(Directory.prepare(str(root)).root, boot=boot)
    session = LocalSession(directory)
    session.start()
    return directory, session


def enter(_: Directory, session: LocalSession, id: str) -> Snapshot:
    entry = Entry("q", id, Mode.EX, Owner("host", 1))
    [snapshot] = Contenders(session).add([entry], unless_blocked=False)
    return snapshot


def test_a_queue_that_lives_in_one_view_is_refused_in_the_other(tmp_path: Path) -> None:
    ours, theirs = view(tmp_path / "s", "a" * 36), view(tmp_path / "s", "b" * 36)
    enter(*ours, "1" * 32)
    path = Path(ours[0].queue("q"))
    before = path.read_bytes()
    with pytest.raises(BackendError, match=r"in use by a process that sees another .*boot_id"):
        enter(*theirs, "2" * 32)
    tidy(theirs[0], str(path))
    assert path.read_bytes() == before
    ours[1].end()
    snapshot = enter(*theirs, "2" * 32)  # nobody lives in the other view
    assert [one.id for one in snapshot.contenders] == ["2" * 32]
    theirs[1].end()
