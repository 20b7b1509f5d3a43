"""Calls are made by the thread for them, while it is free, and never by the main thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
from coordlock_etcd.transport.threads import CallThreads

from coordlock.testing.waiting import eventually


class Calls:
    """Calls that block until they are let go; remembers what was done, and in which thread."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.answer = threading.Event()

    def note(self, what: str) -> None:
        self.done.append((what, threading.current_thread().name))

    def block(self) -> Callable[[], None]:
        self.note("called")
        assert self.answer.wait(30)
        return lambda: self.note("finished")

    def start(self) -> None:
        self.note("started")

    def refuse(self) -> None:
        self.note("refused")


@pytest.fixture
def threads(no_leaks: None) -> Iterator[CallThreads]:
    threads = CallThreads()
    yield threads
    threads.close()
    threads.join(30)


@pytest.fixture
def calls(threads: CallThreads) -> Iterator[Calls]:
    calls = Calls()
    yield calls
    calls.answer.set()


def test_one_call_blocks_the_thread_for_that_and_others_are_started_meanwhile(
    threads: CallThreads, calls: Calls
) -> None:
    threads.run(calls.block, calls.start, calls.refuse)
    eventually(lambda: len(calls.done) == 1)
    for _ in range(2):
        threads.run(calls.block, calls.start, calls.refuse)
    eventually(lambda: len(calls.done) == 3)
    calls.answer.set()
    eventually(lambda: len(calls.done) == 4)
    call, start = "coordlock-etcd-call", "coordlock-etcd-start"
    expected = [("called", call), ("started", start), ("started", start), ("finished", call)]
    assert calls.done == expected


def test_another_thread_starts_its_calls_itself(threads: CallThreads, calls: Calls) -> None:
    threads.run(calls.block, calls.start, calls.refuse)
    thread = threading.Thread(
        target=threads.run, args=(calls.block, calls.start, calls.refuse), name="other"
    )
    thread.start()
    thread.join()
    assert ("started", "other") in calls.done


def test_who_is_told_of_an_answer_may_make_the_next_call(
    threads: CallThreads, calls: Calls
) -> None:
    calls.answer.set()
    told = threading.Event()

    def finish() -> None:
        threads.run(calls.block, calls.start, calls.refuse)
        told.set()

    threads.run(lambda: finish, calls.start, calls.refuse)
    assert told.wait(30)
    eventually(lambda: len(calls.done) == 2)
    assert [what for what, _ in calls.done] == ["called", "finished"]


def test_after_the_end_calls_are_started_where_they_come_from(
    threads: CallThreads, calls: Calls
) -> None:
    threads.close()
    threads.run(calls.block, calls.start, calls.refuse)
    assert calls.done == [("started", threading.current_thread().name)]


@pytest.mark.parametrize("blocks", [True, False])
def test_without_a_thread_no_caller_waits_for_a_call(
    threads: CallThreads, calls: Calls, monkeypatch: pytest.MonkeyPatch, blocks: bool
) -> None:
    if not blocks:
        threads._calling.acquire()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError))
        threads.run(calls.block, calls.start, calls.refuse)
    assert [what for what, _ in calls.done] == ["refused"]
    threads.run(calls.block, calls.start, calls.refuse)
    eventually(lambda: calls.done[-1][0] == ("called" if blocks else "started"))


def test_ctrl_c_while_a_thread_starts_leaves_none_behind(
    threads: CallThreads, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, made = threading.Thread.start, list[threading.Thread]()

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        made.append(thread)
        if len(made) == 1:
            raise KeyboardInterrupt

    threads._calling.acquire()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        threads.run(calls.block, calls.start, calls.refuse)
    threads.run(calls.block, calls.start, calls.refuse)
    eventually(lambda: calls.done == [("started", "coordlock-etcd-start")] * 2)
    threads.close()
    eventually(lambda: not any(one.is_alive() for one in made))
