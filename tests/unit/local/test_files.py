"""The files that a session uses, each time by their paths."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import coordlock_local
import pytest
from coordlock_local.contenders import Contenders
from coordlock_local.directory import Directory
from coordlock_local.queue import LocalQueue
from coordlock_local.session import LocalSession

from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner
from testbed.descriptors import open_descriptors
from tests.unit.signals import Signal


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory.prepare(str(tmp_path / "state"))


@pytest.fixture
def one(directory: Directory) -> Iterator[Contenders]:
    session = LocalSession(directory)
    session.start()
    contenders = Contenders(session)
    yield contenders
    contenders.end()
    assert opened(directory) == []


def opened(directory: Directory) -> list[str]:
    """What this process has open of ``directory``."""
    return [one for one in open_descriptors() if one.startswith(directory.root)]


def entry(queue: str) -> Entry:
    return Entry(queue, os.urandom(16).hex(), Mode.EX, Owner("host", 1))


def test_a_file_and_a_pipe_stay_open_however_many_locks_are_held(
    directory: Directory, one: Contenders
) -> None:
    held = [entry(f"q{number}") for number in range(100)]
    for each in held:
        one.add([each], unless_blocked=False)
    id = one.session.id
    assert opened(directory) == [directory.session(id), directory.pipe(id)]
    assert all(one.remove(each.id) for each in held)


@pytest.mark.parametrize("how", ["removed", "moved"])
@pytest.mark.parametrize("what", ["the queue", "the counter"])
def test_a_file_that_has_gone_is_not_used_any_more(
    directory: Directory, one: Contenders, what: str, how: str
) -> None:
    first = entry("q")
    [snapshot] = one.add([first], unless_blocked=False)
    token = snapshot.contenders[0].order
    path = directory.queue("q") if what == "the queue" else directory.counter
    if how == "moved":
        os.rename(path, f"{directory.root}/elsewhere")
    else:
        os.unlink(path)
    [snapshot] = one.add([entry("q")], unless_blocked=False)
    assert snapshot.contenders[-1].order > token
    assert len(snapshot.contenders) == (1 if what == "the queue" else 2)
    assert one.remove(first.id) is (what == "the counter")


def test_a_signal_handler_at_any_moment_leaves_a_removal_its_file(
    directory: Directory, one: Contenders
) -> None:
    """The fault: the removal looked into another queue's file, and found nothing to remove."""

    def handle() -> None:
        other = entry("other")
        one.add([other], unless_blocked=False)
        one.remove(other.id)

    for moment in itertools.count(1):
        mine = entry("q")
        one.add([mine], unless_blocked=False)
        with Signal(moment, handle, within=coordlock_local) as signal:
            assert one.remove(mine.id), moment
        assert LocalQueue(directory, "q").snapshot().contenders == ()
        if not signal.came:
            break
    assert moment > 15


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_keeps_none_open(directory: Directory, one: Contenders) -> None:
    one.add([entry("q")], unless_blocked=False)
    assert len(opened(directory)) == 2
    child = os.fork()
    if child == 0:
        os._exit(len(opened(directory)))
    assert os.waitpid(child, 0)[1] == 0
