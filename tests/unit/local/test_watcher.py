"""Watching: by messages, and by looks where messages are lost; and whom a departure reaches."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import coordlock_local
import coordlock_local.leaving
import coordlock_local.listening
import coordlock_local.pipes
import pytest
from coordlock_local.contenders import Contenders
from coordlock_local.directory import Directory
from coordlock_local.leaving import evict, leave, waiting
from coordlock_local.pipes import open_end, subscribe
from coordlock_local.queue import sweep
from coordlock_local.session import LocalSession
from coordlock_local.slots import Slots
from coordlock_local.watcher import Watcher
from hypothesis import given
from hypothesis import strategies as st

from coordlock.backend import Departure
from coordlock.model.admission import blockers
from coordlock.model.claim import Mode, Permit
from coordlock.model.contender import Contender, Entry, Owner, Snapshot
from coordlock.runtime.driver import Steps, run
from coordlock.runtime.promise import Promise
from coordlock.runtime.shared_file import close_kept
from coordlock.testing.waiting import eventually
from tests.unit.signals import moments

BOUND = 30.0


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory.prepare(str(tmp_path / "state"))


@pytest.fixture
def session(directory: Directory) -> Iterator[LocalSession]:
    session = LocalSession(directory)
    session.start()
    yield session
    session.end()


@pytest.fixture(params=["messages", "lost messages", "a full pipe"])
def watcher(
    request: pytest.FixtureRequest,
    directory: Directory,
    no_leaks: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Watcher]:
    # Nothing but messages is heard, or nothing but looks.
    monkeypatch.setattr(coordlock_local.listening, "_INTERVAL_S", 3600.0)
    if request.param == "lost messages":
        monkeypatch.setattr(coordlock_local.listening, "_INTERVAL_S", 0.05)
        monkeypatch.setattr(coordlock_local.leaving, "send", lambda *_: True)
        monkeypatch.setattr(coordlock_local.pipes, "send", lambda *_: True)
    if request.param == "a full pipe":
        monkeypatch.setattr(coordlock_local.pipes, "_ROOM_BYTES", 0)
    other = LocalSession(directory)
    other.start()
    watcher = Watcher(other, lambda: None)
    yield watcher
    watcher.close()
    other.end()


def add(directory: Directory, session: LocalSession, id: str = "a" * 32) -> Contender:
    entry = Entry("q", id, Mode.EX, Owner("host", 1))
    [snapshot] = Contenders(session).add([entry], unless_blocked=False)
    return snapshot.contenders[-1]


def remove(directory: Directory, contender: Contender) -> None:
    """What the contender's own process does when it leaves."""
    assert leave(directory, contender, [contender.id])


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
    assert evict(directory, waiters[0])
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


claims = st.one_of(
    st.lists(st.sampled_from(list(Mode)), min_size=2, max_size=8),
    st.builds(lambda of, count: [Permit(of)] * count, st.integers(1, 4), st.integers(2, 8)),
)


@given(claims, st.data())
def test_a_departure_reaches_all_that_wait_for_it(claims: list[Mode | Permit], data: Any) -> None:
    """Those for which the rule of admission names it, among the contenders whose process lives."""
    dead = data.draw(st.sets(st.sampled_from(range(len(claims)))))
    leaving = data.draw(st.sampled_from(range(len(claims))))
    queue = [
        Contender(f"{order}", f"q@0.{order}", claim, order, order, session=f"{order}")
        for order, claim in enumerate(claims)
    ]
    living = [one for one in queue if one.order not in dead or one.order == leaving]
    wait_for_it = {
        one.session
        for one in living
        if queue[leaving] in blockers(Snapshot("q", tuple(living)), one)
    }

    def lives(session: str) -> bool:
        return int(session) not in dead

    reached = set(waiting(claims[leaving], leaving, queue[leaving + 1 :], lives))
    if not isinstance(claims[leaving], Permit):
        assert reached - {f"{order}" for order in dead} == wait_for_it, "and no others"
    assert reached >= wait_for_it


def test_a_dead_process_between_whose_pipe_a_stopped_one_keeps_open_keeps_no_departure(
    directory: Directory, session: LocalSession, watcher: Watcher
) -> None:
    between = LocalSession(directory)
    between.start()
    ahead = add(directory, session)
    add(directory, between, "b" * 32)
    me = add(directory, watcher._session, "c" * 32)
    stopped = open_end(directory, between.id)
    assert stopped is not None
    end_pipe(between)
    end_lock(between)
    departures = list[Departure]()
    watcher.watch(ahead, departures.append, (me,))
    remove(directory, ahead)
    eventually(lambda: departures)
    close_kept(stopped)
    between.end()


def test_a_pipe_that_has_ended_an_instant_before_it_is_opened_is_seen_to_have_ended(
    directory: Directory, watcher: Watcher
) -> None:
    dying = LocalSession(directory)
    dying.start()
    contender = add(directory, dying)
    end_pipe(dying)
    departures = list[Departure]()
    watcher.watch(contender, departures.append)
    end_lock(dying)
    eventually(lambda: departures)
    dying.end()


def test_the_deaths_of_many_processes_are_seen(directory: Directory, watcher: Watcher) -> None:
    """The fault: of more than a few, the last one's pipe was taken for one that is not needed."""
    dying = [LocalSession(directory) for _ in range(20)]
    departures = list[Departure]()
    for session in dying:
        session.start()
        contender = add(directory, session, session.id)
        watcher.watch(contender, departures.append)
    for session in dying:
        end_pipe(session)
        end_lock(session)
    eventually(lambda: len(departures) == len(dying))
    for session in dying:
        session.end()


def end_pipe(session: LocalSession) -> None:
    """The first part of what the system does when its process is killed."""
    assert session.pipe is not None
    session.pipe.close()


def end_lock(session: LocalSession) -> None:
    """The second part."""
    assert session._descriptor is not None
    close_kept(session._descriptor)


def test_the_next_session_clears_away_what_a_dead_process_has_left(
    directory: Directory, session: LocalSession
) -> None:
    dead, new, place = LocalSession(directory), LocalSession(directory), directory.change("key")
    dead.start()
    for each in (dead, session):
        add(directory, each, each.id)
        subscribe(directory, place, each.id)
    end_lock(dead)
    sweep(directory, new.start())
    assert os.listdir(directory.observers(place)) == [session.id]
    for folder in (directory.pipes, directory.sessions):
        assert sorted(os.listdir(folder)) == sorted([session.id, new.id])
    with Slots(directory, directory.queue("q")) as slots:
        assert [token > 0 for token in slots.index()[:3]] == [False, True, False]
    new.end()
    dead.end()


@pytest.mark.usefixtures("generators_end_unheard")
def test_ctrl_c_at_any_moment_of_a_watch_delays_no_later_one(
    directory: Directory, session: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is not watched would not be found.
    monkeypatch.setattr(coordlock_local.listening, "_INTERVAL_S", 3600.0)
    other = LocalSession(directory)
    other.start()
    for strike in moments(30, coordlock_local):
        watcher = Watcher(other, lambda: None)
        ahead, me = add(directory, session), add(directory, other, "b" * 32)
        told = threading.Event()

        def watch(told: Callable[[], None]) -> None:
            watcher.watch(ahead, lambda _: told(), (me,))  # noqa: B023

        strike(lambda: watch(lambda: None))
        watch(told.set)
        remove(directory, ahead)
        assert told.wait(BOUND)
        remove(directory, me)
        watcher.close()
    other.end()


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


def test_a_full_disk_delays_who_must_subscribe_and_no_more(
    directory: Directory, session: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_inodes(self: Directory, path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(coordlock_local.listening, "_INTERVAL_S", 0.05)
    other = LocalSession(directory)
    other.start()
    watcher = Watcher(other, lambda: None)
    contender = add(directory, session)
    monkeypatch.setattr(Directory, "make", without_inodes)
    left = threading.Event()
    watcher.watch(contender, lambda _: left.set())
    remove(directory, contender)
    assert left.wait(BOUND)
    watcher.close()
    other.end()


def test_a_signal_handler_may_wait_while_its_thread_does(
    directory: Directory, session: LocalSession
) -> None:
    other = LocalSession(directory)
    other.start()
    watcher = Watcher(other, lambda: None)

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
