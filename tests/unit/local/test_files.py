"""The files that a session uses, each time by their paths."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import coordlock_local
import pytest
from coordlock_local import listening
from coordlock_local.attempts import Attempts
from coordlock_local.contenders import Contenders
from coordlock_local.directory import Directory
from coordlock_local.errors import Busy
from coordlock_local.followers import Followers
from coordlock_local.queue import LocalQueue
from coordlock_local.session import LocalSession
from coordlock_local.slots import Slots

from coordlock.backend import Queue
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.promise import Promise
from coordlock.testing.waiting import eventually
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


def test_a_signal_handler_that_waits_keeps_no_other_thread_waiting_for_ever(
    one: Contenders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for just that thread, as one that shuts a pool of threads down does."""
    put, refused = Slots.put, list[BaseException | None]()

    def interrupted(*arguments: Any) -> None:
        monkeypatch.setattr(Slots, "put", put)
        adding = pool.submit(one.add, [entry("other")], unless_blocked=False)
        with suppress(TimeoutError):
            refused.append(adding.exception(30))  # and an attempt after the other
        put(*arguments)

    monkeypatch.setattr(Slots, "put", interrupted)
    with ThreadPoolExecutor(1) as pool:
        one.add([entry("q")], unless_blocked=False)
    assert [type(error) for error in refused] == [Busy]
    one.add([entry("other")], unless_blocked=False)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_keeps_none_open(directory: Directory, one: Contenders) -> None:
    one.add([entry("q")], unless_blocked=False)
    assert len(opened(directory)) == 2
    child = os.fork()
    if child == 0:
        os._exit(len(opened(directory)))
    assert os.waitpid(child, 0)[1] == 0


def test_observers_of_a_queue_see_at_once_that_a_process_in_it_has_died(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nobody is sent to a leader that has died, while its successor leads."""
    monkeypatch.setattr(listening, "_INTERVAL_S", 3600.0)
    followers = Followers(directory, SystemTimers(), Attempts(directory.data_lock).perform)
    seen = followers.follow(Queue("q"), lambda: None)
    for _ in range(2):  # also those that come later
        session = LocalSession(directory)
        session.start()
        Contenders(session).add([entry("q")], unless_blocked=False)
        eventually(lambda: seen.view.state is not None and seen.view.state.contenders)
        session.end()  # as a process that dies, it leaves its contender there
        eventually(lambda: seen.view.state is not None and not seen.view.state.contenders)
    followers.close()


def test_a_queue_with_a_session_whose_pipe_cannot_be_opened_is_not_read_all_the_time(
    directory: Directory, one: Contenders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_INTERVAL_S", 3600.0)
    monkeypatch.setattr(listening, "open_end", lambda *_: None)
    readings = itertools.count()

    def counted(read: Callable[[], object]) -> Promise[object]:
        next(readings)
        return Attempts(directory.data_lock).perform(read)

    one.add([entry("q")], unless_blocked=False)
    followers = Followers(directory, SystemTimers(), counted)
    seen = followers.follow(Queue("q"), lambda: None)
    eventually(lambda: seen.view.state is not None)

    def is_quiet() -> bool:
        before = next(readings)
        time.sleep(0.3)
        return next(readings) == before + 1

    eventually(is_quiet)
    followers.close()


def test_who_follows_a_long_queue_leaves_the_program_its_descriptors(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those beyond a number are seen to have died when the queue is read now and then."""
    monkeypatch.setattr("coordlock_local.followers._MAX_ENDS", 2)
    monkeypatch.setattr(listening, "_INTERVAL_S", 0.1)
    clients = []
    for _ in range(5):
        session = LocalSession(directory)
        session.start()
        clients.append(Contenders(session))
        clients[-1].add([entry("q")], unless_blocked=False)
    followers = Followers(directory, SystemTimers(), Attempts(directory.data_lock).perform)
    seen = followers.follow(Queue("q"), lambda: None)

    def shows(count: int) -> Callable[[], bool]:
        return lambda: seen.view.state is not None and len(seen.view.state.contenders) == count

    eventually(shows(5))
    eventually(lambda: len(followers.ends) == 2)
    for left, client in zip((4, 3, 2, 1, 0), reversed(clients), strict=True):
        client.session.end()  # as a process that dies, it leaves its contender there
        eventually(shows(left))
    followers.close()
