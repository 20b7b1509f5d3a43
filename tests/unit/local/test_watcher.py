"""Watching: with inotify, without, and when there is not enough of it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from coordlock_local import inotify
from coordlock_local.directory import Directory
from coordlock_local.inotify import Inotify
from coordlock_local.notices import Notices, Polling
from coordlock_local.queue import Queue, remove
from coordlock_local.session import LocalSession
from coordlock_local.watcher import Watcher, notices

from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Entry, Owner
from coordlock.testing.waiting import eventually

BOUND = 30.0


class Exhausted(Inotify):
    """No watch is left: ``fs.inotify.max_user_watches`` is reached."""

    def add(self, path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class Deaf(Inotify):
    """Loses every notice, as when a forked child keeps a file open."""

    def wait(self, timeout: float | None) -> Collection[str] | None:
        super().wait(timeout)
        return ()


class Overflowing(Inotify):
    """The kernel's queue of notices overflows."""

    def wait(self, timeout: float | None) -> Collection[str] | None:
        return None if super().wait(timeout) else ()


SOURCES: list[Callable[[], Notices]] = [Inotify, Polling, Exhausted, Deaf, Overflowing]


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory.prepare(str(tmp_path / "state"))


@pytest.fixture
def session(directory: Directory) -> Iterator[LocalSession]:
    session = LocalSession(directory)
    session.start()
    yield session
    session.end()


@pytest.fixture(params=SOURCES, ids=lambda source: source.__name__)
def watcher(
    request: pytest.FixtureRequest, directory: Directory, no_leaks: None
) -> Iterator[Watcher]:
    watcher = Watcher(directory, request.param)
    yield watcher
    watcher.close()


def add(directory: Directory, session: LocalSession, id: str = "a" * 32) -> Contender:
    entry = Entry("q", id, Mode.EX, Owner("host", 1))
    contender = Queue(directory, "q").add(entry, session, lambda path: None)
    assert contender is not None
    return contender


def test_a_removal_is_told_once_to_each(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender, other = add(directory, session), add(directory, session, "b" * 32)
    told: list[int] = []
    for number in range(3):
        watcher.watch(contender, lambda _, number=number: told.append(number))  # type: ignore[misc]
    watcher.watch(other, lambda _: told.append(99))
    assert told == []
    remove(contender.key)
    eventually(lambda: len(told) == 3)
    remove(other.key)
    eventually(lambda: len(told) == 4)
    assert sorted(told) == [0, 1, 2, 99]


def test_the_end_of_a_session_is_told_for_all_its_contenders(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contenders = [add(directory, session, letter * 32) for letter in "abc"]
    events = [threading.Event() for _ in contenders]
    for contender, event in zip(contenders, events, strict=True):
        watcher.watch(contender, lambda _, event=event: event.set())  # type: ignore[misc]
    session.end()
    assert all(event.wait(BOUND) for event in events)
    assert os.listdir(directory.queues) == []  # who sees the dead removes them


def test_who_has_left_before_is_told_at_once(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender = add(directory, session)
    remove(contender.key)
    told: list[int] = []
    watcher.watch(contender, lambda _: told.append(1))
    assert told == [1]


def test_a_departure_says_that_an_earlier_one_may_follow_it(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    told: list[bool] = []
    contender = add(directory, session)
    watcher.watch(contender, told.append)
    remove(contender.key)
    eventually(lambda: told)
    assert told == [False]


def test_a_cancelled_watch_tells_nothing(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender, other = add(directory, session), add(directory, session, "b" * 32)
    told: list[str] = []
    cancel = watcher.watch(contender, lambda _: told.append("cancelled"))
    watcher.watch(other, lambda _: told.append("kept"))
    cancel()
    cancel()
    remove(contender.key)
    remove(other.key)
    eventually(lambda: told)
    assert told == ["kept"]


def test_a_watcher_that_raises_does_not_keep_the_others_from_being_told(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender = add(directory, session)
    told = threading.Event()

    def fail(_: bool) -> None:
        raise ZeroDivisionError

    watcher.watch(contender, fail)
    watcher.watch(contender, lambda _: told.set())
    remove(contender.key)
    assert told.wait(BOUND)


def test_a_watcher_may_be_closed_by_whom_it_tells(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender = add(directory, session)
    told = threading.Event()

    def close(_: bool) -> None:
        watcher.close()
        told.set()

    watcher.watch(contender, close)
    remove(contender.key)
    assert told.wait(BOUND)


def test_nothing_is_told_after_closing(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender = add(directory, session)
    told: list[int] = []
    watcher.watch(contender, lambda _: told.append(1))
    watcher.close()
    remove(contender.key)
    watcher.watch(contender, lambda _: told.append(2))()
    assert told == []


def test_without_inotify_departures_are_polled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: Inotify) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    best = notices()
    assert isinstance(best, Inotify)
    best.close()
    monkeypatch.setattr(inotify.Inotify, "__init__", none_left)
    assert isinstance(notices(), Polling)


def test_watching_many_files_and_dropping_them_leaves_nothing(tmp_path: Path) -> None:
    source = Inotify()
    paths = [tmp_path / str(number) for number in range(100)]
    for path in paths:
        path.write_text("")
        source.add(str(path))
    for path in paths[:50]:
        path.unlink()
    assert set(source.wait(BOUND) or ()) == {str(path) for path in paths[:50]}
    for path in paths:
        source.drop(str(path))
    assert not source._paths
    assert not source._watches
    for path in paths[50:]:
        path.unlink()
    source.wake()
    assert source.wait(BOUND) == set()  # the last words of dropped watches
    source.close()
    source.close()
