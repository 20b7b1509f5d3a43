"""Processes with another view of the boot id, as in some containers, on one directory."""

from __future__ import annotations

from pathlib import Path

from coordlock_local.contenders import Contenders
from coordlock_local.directory import Directory
from coordlock_local.queue import LocalQueue, tidy
from coordlock_local.session import LocalSession

from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner, Snapshot


def view(root: Path, boot: str) -> LocalSession:
    directory = Directory(Directory.prepare(str(root)).root, boot=boot)
    session = LocalSession(directory)
    session.start()
    return session


def enter(session: LocalSession, id: str) -> Snapshot:
    entry = Entry("q", id, Mode.EX, Owner("host", 1))
    [snapshot] = Contenders(session).add([entry], unless_blocked=False)
    return snapshot


def test_processes_with_different_boot_ids_are_in_one_queue(tmp_path: Path) -> None:
    ours, theirs = view(tmp_path / "s", "a" * 36), view(tmp_path / "s", "b" * 36)
    ids = ["1" * 32, "2" * 32, "3" * 32]
    enter(ours, ids[0])
    enter(theirs, ids[1])
    snapshot = enter(ours, ids[2])
    assert [one.id for one in snapshot.contenders] == ids[1:]  # of which it waits for the last
    whole = LocalQueue(theirs.directory, "q").snapshot(owners=True).contenders
    assert [one.id for one in whole] == ids
    tidy(theirs.directory, ours.directory.queue("q"))
    assert LocalQueue(ours.directory, "q").snapshot(owners=True).contenders == whole
    ours.end()
    theirs.end()
