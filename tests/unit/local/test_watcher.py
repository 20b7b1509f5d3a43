"""Watching: with inotify, without, and when there is not enough of it."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import coordlock_local
import pytest
from coordlock_local import inotify
from coordlock_local.contenders import Contenders
from coordlock_local.counter import Counter
from coordlock_local.directory import Directory
from coordlock_local.inotify import Inotify
from coordlock_local.notices import Notices, Polling, notices
from coordlock_local.queue import evict
from coordlock_local.session import LocalSession
from coordlock_local.slots import SERVED, Slot, leave, tell
from coordlock_local.watcher import Watcher

from coordlock.backend import Departure
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Entry, Owner
from coordlock.runtime.driver import Steps, run
from coordlock.runtime.promise import Promise
from coordlock.testing.waiting import eventually
from tests.unit.signals import interrupted

BOUND = 30.0


class Exhausted(Inotify):
    """No watch is left: ``fs.inotify.max_user_watches`` is reached."""

    def add(self, path: str, *, closed: bool = True) -> None:
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
    other = LocalSession(directory)
    other.start()
    watcher = Watcher(other, request.param)
    yield watcher
    watcher.close()
    other.end()


def add(directory: Directory, session: LocalSession, id: str = "a" * 32) -> Contender:
    entry = Entry("q", id, Mode.EX, Owner("host", 1))
    [snapshot] = Contenders(session).add([entry], unless_blocked=False)
    return snapshot.contenders[-1]


def remove(directory: Directory, contender: Contender) -> None:
    """What the contender's own process does when it leaves."""
    slot = Slot.of(contender)
    was_there, follower = leave(directory, slot, contender.id, {contender.id: slot})
    assert was_there
    tell(directory, contender.session, contender.id, follower)


def test_a_removal_is_told_once_to_each(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender, other = add(directory, session), add(directory, session, "b" * 32)
    told: list[int] = []
    for number in range(3):
        watcher.watch(contender, lambda _, number=number: told.append(number))  # type: ignore[misc]
    watcher.watch(other, lambda _: told.append(99))
    assert told == []
    remove(directory, contender)
    eventually(lambda: len(told) == 3)
    remove(directory, other)
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


def test_who_has_left_before_is_told_at_once(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender = add(directory, session)
    remove(directory, contender)
    told: list[int] = []
    watcher.watch(contender, lambda _: told.append(1))
    assert told == [1]
    assert os.listdir(directory.watched) == []


def test_an_eviction_is_told_too(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender, other = add(directory, session), add(directory, session, "b" * 32)
    told: list[str] = []
    watcher.watch(contender, lambda _: told.append("evicted"))
    watcher.watch(other, lambda _: told.append("not evicted"))
    assert evict(directory, Counter(directory), contender)
    eventually(lambda: told)
    assert told == ["evicted"]


def test_a_departure_is_in_order_if_the_waiter_is_still_there(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    first, second = add(directory, session), add(directory, session, "b" * 32)
    waiters = [add(directory, watcher._session, letter * 32) for letter in "cd"]
    told: dict[str, Departure] = {}

    def note(who: str) -> Callable[[Departure], None]:
        return lambda departure: told.__setitem__(who, departure)

    watcher.watch(first, note("for somebody"))
    for waiter, who in zip(waiters, ("evicted", "there"), strict=True):
        watcher.watch(first, note(who), (waiter,))
        watcher.watch(second, note(f"{who}, second"), (waiter,))
    assert evict(directory, Counter(directory), waiters[0])
    remove(directory, first)
    eventually(lambda: len(told) == 3)
    assert told == {
        "for somebody": Departure.UNORDERED,
        "evicted": Departure.UNORDERED,
        "there": Departure.FIRST,
    }
    os.unlink(directory.session(watcher._session.id))  # to all others its contenders are dead
    remove(directory, second)
    eventually(lambda: len(told) == 5)
    assert told["there, second"] is Departure.UNORDERED


def test_the_sessions_own_contenders_are_told_of_here_without_a_file(
    directory: Directory, watcher: Watcher
) -> None:
    contender = add(directory, watcher._session)
    told: list[Departure] = []
    watcher.watch(contender, told.append)
    assert os.listdir(directory.watched) == []
    remove(directory, contender)
    watcher.own_left(contender.key)
    watcher.own_left(contender.key)
    assert told == [Departure.UNORDERED]


def test_the_next_in_line_hears_its_bell_and_makes_no_file(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    for _ in range(3):  # the bell and the file of the session are watched from the first time on
        ahead = add(directory, session)
        me = add(directory, watcher._session, "b" * 32)
        told = list[Departure]()
        watcher.watch(ahead, told.append, (me,))
        assert set(os.listdir(directory.watched)) <= {f"{watcher._session.id}-bell"}
        remove(directory, ahead)
        eventually(lambda: told)  # noqa: B023
        assert told == [Departure.FIRST]
        remove(directory, me)


@pytest.mark.parametrize("why", ["not the next", "a session that does not ring", "a late slot"])
def test_who_is_not_rung_for_makes_a_file(
    directory: Directory, session: LocalSession, watcher: Watcher, why: str
) -> None:
    ahead = add(directory, session)
    between = []
    if why != "a session that does not ring":
        count = 1 if why == "not the next" else SERVED
        between = [add(directory, session, f"{number:032}") for number in range(count)]
    me = add(directory, watcher._session, "b" * 32)
    if why == "a late slot":
        for one in between:
            remove(directory, one)
    if why == "a session that does not ring":
        os.truncate(directory.session(session.id), 0)
    told = list[Departure]()
    watcher.watch(ahead, told.append, (me,))
    assert os.listdir(directory.watched) == [f"{session.id}-{ahead.id}"]
    remove(directory, ahead)
    eventually(lambda: told)
    assert told == [Departure.FIRST]


def test_who_leaves_rings_for_the_next_alone(directory: Directory, session: LocalSession) -> None:
    contenders = [add(directory, session, letter * 32) for letter in "abc"]
    others = [LocalSession(directory) for _ in range(2)]
    for other, letter in zip(others, "de", strict=True):
        other.start()
        contenders.append(add(directory, other, letter * 32))
    evict(directory, Counter(directory), contenders[3])

    def follower(contender: Contender) -> str | None:
        slot = Slot.of(contender)
        return leave(directory, slot, contender.id, {contender.id: slot})[1]

    first, second, third, _, last = contenders
    assert follower(second) == session.id
    assert follower(third) == others[1].id
    assert follower(first) == others[1].id
    assert follower(last) is None
    for other in others:
        other.end()


def test_ctrl_c_at_any_moment_of_a_watch_delays_no_later_one(
    directory: Directory, session: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inotify, "interval", 3600.0)  # what is not watched would not be found
    other = LocalSession(directory)
    other.start()
    for moment in itertools.count(1):
        watcher = Watcher(other)
        ahead, me = add(directory, session), add(directory, other, "b" * 32)
        told = threading.Event()

        def watch(told: Callable[[], None]) -> None:
            watcher.watch(ahead, lambda _: told(), (me,))  # noqa: B023

        came = interrupted(lambda: watch(lambda: None), moment, coordlock_local)
        watch(told.set)
        remove(directory, ahead)
        assert told.wait(BOUND), moment
        remove(directory, me)
        watcher.close()
        if not came:
            break
    assert moment > 30
    other.end()


def test_the_sessions_own_that_has_left_before_is_told_at_once_each_time(
    directory: Directory, watcher: Watcher
) -> None:
    for _ in range(3):
        contender = add(directory, watcher._session)
        watcher.watch(contender, lambda _: None)
        watcher.own_left(contender.key)
        remove(directory, contender)
        told = list[Departure]()
        watcher.watch(contender, told.append)
        assert told == [Departure.UNORDERED]


def test_a_cancelled_watch_tells_nothing(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender, other = add(directory, session), add(directory, session, "b" * 32)
    told: list[str] = []
    cancel = watcher.watch(contender, lambda _: told.append("cancelled"))
    watcher.watch(other, lambda _: told.append("kept"))
    cancel()
    cancel()
    remove(directory, contender)
    remove(directory, other)
    eventually(lambda: told)
    assert told == ["kept"]


def test_a_watcher_that_raises_does_not_keep_the_others_from_being_told(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender = add(directory, session)
    told = threading.Event()

    def fail(_: Departure) -> None:
        raise ZeroDivisionError

    watcher.watch(contender, fail)
    watcher.watch(contender, lambda _: told.set())
    remove(directory, contender)
    assert told.wait(BOUND)


def test_a_watcher_may_be_closed_by_whom_it_tells(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender = add(directory, session)
    told = threading.Event()

    def close(_: Departure) -> None:
        watcher.close()
        told.set()

    watcher.watch(contender, close)
    remove(directory, contender)
    assert told.wait(BOUND)


def test_nothing_is_told_after_closing(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    contender = add(directory, session)
    told: list[int] = []
    watcher.watch(contender, lambda _: told.append(1))
    watcher.close()
    remove(directory, contender)
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


def test_a_full_disk_is_not_taken_for_a_limit_of_inotify(
    directory: Directory,
    session: LocalSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = LocalSession(directory)
    other.start()
    watcher = Watcher(other)
    contender = add(directory, session)
    open_file = Directory.open

    def without_inodes(self: Directory, path: str, flags: int) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return open_file(self, path, flags)

    monkeypatch.setattr(Directory, "open", without_inodes)
    told = threading.Event()
    watcher.watch(contender, lambda _: told.set())
    remove(directory, contender)
    assert told.wait(BOUND)
    watcher.close()
    other.end()
    messages = [record.getMessage() for record in caplog.records]
    assert any("inodes" in message for message in messages)
    assert not any("inotify" in message for message in messages)


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


def test_a_bell_that_somebody_removes_is_made_anew(
    directory: Directory, session: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inotify, "interval", 3600.0)  # what is not heard would not be found
    other = LocalSession(directory)
    other.start()
    watcher = Watcher(other)
    bell = directory.bell(other.id)
    for _ in range(2):
        ahead, me = add(directory, session), add(directory, other, "b" * 32)
        told = list[Departure]()
        watcher.watch(ahead, told.append, (me,))
        os.unlink(bell)
        eventually(lambda: os.path.exists(bell))
        remove(directory, ahead)
        eventually(lambda: told)  # noqa: B023
        remove(directory, me)
    watcher.close()
    other.end()


def test_a_signal_handler_may_wait_while_its_thread_does(
    directory: Directory, session: LocalSession
) -> None:
    other = LocalSession(directory)
    other.start()
    watcher = Watcher(other)

    def wait(id: str, then: Callable[[], object]) -> None:
        ahead, me = add(directory, session, id * 32), add(directory, other, "b" * 32)

        def depart() -> Steps[None]:
            promise = Promise[None]()

            def told(_: Departure) -> None:
                promise.resolve(None)

            watcher.watch(ahead, told, (me,))
            then()
            threading.Timer(0.1, remove, (directory, ahead)).start()
            yield promise

        run(depart())
        remove(directory, me)

    came = list[bool]()

    def handle(*_: object) -> None:
        wait("c", lambda: came.append(True))

    before = signal.signal(signal.SIGALRM, handle)
    try:
        while not came:
            wait("a", lambda: signal.setitimer(signal.ITIMER_REAL, 0.05))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    watcher.close()
    other.end()
