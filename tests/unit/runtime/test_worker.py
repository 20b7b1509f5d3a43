"""Calls that may block are made in order by a thread of their own, whatever happens to callers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from coordlock.runtime.process import THREAD
from coordlock.runtime.worker import Worker
from coordlock.testing.waiting import eventually
from tests.unit.signals import Signal, interrupted

BOUND = 30.0
pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def errands() -> Worker:
    return Worker("test-errands")


@pytest.fixture
def blocked(errands: Worker) -> Iterator[threading.Event]:
    """The first call blocks until this is set."""
    goes_on, stands_still = threading.Event(), threading.Event()

    def stand_still() -> None:
        stands_still.set()
        goes_on.wait(BOUND)

    errands.run(stand_still)
    assert stands_still.wait(BOUND)
    yield goes_on
    goes_on.set()


def test_calls_are_made_in_order_by_one_thread(errands: Worker) -> None:
    made: list[tuple[int, int]] = []

    def make(number: int) -> None:
        made.append((number, threading.get_ident()))

    for number in range(100):
        errands.run(partial(make, number))
    assert errands.finish(BOUND)
    assert [number for number, _ in made] == list(range(100))
    assert len({thread for _, thread in made}) == 1
    assert made[0][1] != threading.get_ident()


def test_a_call_that_blocks_holds_up_nobody_but_later_calls(
    errands: Worker, blocked: threading.Event
) -> None:
    made: list[str] = []
    errands.run(lambda: made.append("after it"))
    assert not errands.finish(0.05)
    assert made == []
    blocked.set()
    assert errands.finish(BOUND)
    assert made == ["after it"]


def test_the_thread_ends_when_there_is_nothing_to_do_and_another_one_comes(
    errands: Worker,
) -> None:
    for _ in range(2):
        errands.run(lambda: None)
        assert errands.finish(BOUND)
        eventually(lambda: "test-errands" not in [one.name for one in threading.enumerate()])
        assert errands.finish(0.0), "there is nothing to wait for"


def test_a_call_that_fails_does_not_keep_the_next_ones_from_being_made(
    errands: Worker, blocked: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)

    def fail() -> None:
        raise ZeroDivisionError

    made: list[str] = []
    errands.run(fail)
    errands.run(lambda: made.append("after it"))
    blocked.set()
    assert errands.finish(BOUND)
    assert made == ["after it"]
    assert [failure.exc_type for failure in failures] == [ZeroDivisionError]


def test_a_call_from_within_a_call_comes_last(errands: Worker, blocked: threading.Event) -> None:
    made: list[str] = []
    errands.run(lambda: errands.run(lambda: made.append("from within")))
    errands.run(lambda: made.append("before"))
    blocked.set()
    eventually(lambda: len(made) == 2)
    assert made == ["before", "from within"]


def test_where_no_thread_can_be_had_the_caller_makes_the_calls(
    errands: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the interpreter is exiting, or at a limit of threads."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    made: list[int] = []
    errands.run(lambda: 1 / 0)
    errands.run(lambda: made.append(threading.get_ident()))
    assert made == [threading.get_ident()]


def test_a_thread_that_must_not_wait_leaves_slow_calls_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, made = Worker("slow", is_slow=True), list[int]()
    with monkeypatch.context() as limit:
        limit.setattr(THREAD, "must_not_wait", True)
        limit.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError))
        slow.run(lambda: made.append(threading.get_ident()))
        assert slow.is_stuck
    assert slow.finish(30)
    assert len(made) == 1
    assert made != [threading.get_ident()]


def test_ctrl_c_at_any_moment_keeps_no_later_call_from_being_made() -> None:
    for number in itertools.count(1):
        errands, made = Worker("test-errands"), list[str]()
        came = interrupted(lambda: errands.run(lambda: made.append("struck")), number)  # noqa: B023
        errands.run(lambda: made.append("next"))  # noqa: B023
        assert errands.finish(BOUND)
        assert made in (["next"], ["struck", "next"])
        if not came:
            break
    assert number > 3


def test_a_signal_handler_may_have_calls_made_at_any_moment() -> None:
    for number in itertools.count(1):
        errands, made = Worker("test-errands"), list[str]()
        signal = Signal(number, lambda: errands.run(lambda: made.append("handler's")))  # noqa: B023
        with signal:
            errands.run(lambda: made.append("own"))  # noqa: B023
        assert errands.finish(BOUND)
        assert sorted(made) == ["handler's", "own"][1 - signal.came :]
        if not signal.came:
            break
    assert number > 3


def test_a_worker_that_is_to_end_makes_the_calls_that_wait_and_keeps_no_thread() -> None:
    worker = Worker("ending", idle=3600.0)
    made: list[int] = []
    for number in range(3):
        worker.run(partial(made.append, number))
    worker.end()
    worker.end()
    eventually(lambda: worker.is_idle)
    assert made == [0, 1, 2]
