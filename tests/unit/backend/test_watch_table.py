"""Each watch is called once, whatever other watches, threads and signal handlers do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType

import pytest

import coordlock.backend.watch_table
import coordlock.runtime.promise
from coordlock.backend import Departure
from coordlock.backend.watch_table import Watched, WatchTable
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender
from coordlock.runtime.process import PROCESS
from tests.unit.signals import interrupted

WAITER = Contender("w", "q/w", Mode.EX, 2)


class Table:
    """A table in which one contender is watched, and what has become of it."""

    def __init__(self) -> None:
        self.unwatched: list[Watched] = []
        self.table: WatchTable[Watched] = WatchTable(threading.RLock(), self.unwatched.append)
        self.watched = Watched("c")
        self.calls: list[tuple[str, Departure]] = []

    def watch(
        self, name: str, *waiters: Contender, version: int = 0, then: Callable[[], object] = list
    ) -> Callable[[], None]:
        def call(departure: Departure) -> None:
            self.calls.append((name, departure))
            then()

        self.watched, watch = self.table.add(self.watched, call, waiters, version)
        return watch

    def report(self) -> None:
        self.table.report(self.watched, lambda _: Departure.IN_ORDER)


def test_a_departure_reaches_all_watches_once_and_proves_something_to_waiters_alone() -> None:
    table = Table()
    table.watch("waits", WAITER)
    table.watch("observes")
    table.watch("changes", WAITER, version=1)
    table.report()
    table.report()
    unordered = Departure.UNORDERED
    expected = [("waits", Departure.IN_ORDER), ("observes", unordered), ("changes", unordered)]
    assert table.calls == expected
    assert table.unwatched == [table.watched]
    assert not table.table.watched


def test_who_watches_the_same_contender_shares_it_until_the_last_has_cancelled() -> None:
    table = Table()
    first, second = table.watch("first"), table.watch("second")
    other, _ = table.table.add(Watched("c"), lambda _: None)
    assert other is table.watched
    for cancel in (first, first, second):
        cancel()
    assert table.unwatched == []
    table.report()
    assert table.calls == []
    assert len(table.unwatched) == 1


def test_a_watch_that_is_cancelled_in_a_forked_child_stays_the_parents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table()
    cancel = table.watch("parent's")
    with monkeypatch.context() as child:
        child.setattr(PROCESS, "id", -1)
        cancel()
    table.report()
    assert [name for name, _ in table.calls] == ["parent's"]


def test_a_watch_that_another_cancels_or_adds_meanwhile_counts() -> None:
    table = Table()
    table.watch("first", then=lambda: (cancel(), table.watch("added")))
    cancel = table.watch("cancelled")
    table.report()
    assert [name for name, _ in table.calls] == ["first", "added"]


def test_a_watch_that_raises_stops_no_other() -> None:
    table = Table()
    table.watch("first", then=lambda: 1 / 0)
    table.watch("second")
    table.report()
    assert {name for name, _ in table.calls} == {"first", "second"}


def test_a_value_is_reported_to_those_who_know_another() -> None:
    table = Table()
    table.watch("knows", version=2)
    table.watch("has yet to learn", version=1)
    table.watch("does not care")
    table.table.report_value(table.watched, 2)
    table.table.report_value(table.watched, 2)
    assert table.calls == [("has yet to learn", Departure.UNORDERED)]
    assert table.unwatched == []


def test_of_threads_that_report_the_same_one_calls_each_watch() -> None:
    for _ in range(20):
        table, start = Table(), threading.Barrier(4)
        for number in range(8):
            table.watch(str(number))
        with ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                pool.submit(lambda table=table, start=start: (start.wait(), table.report()))  # type: ignore[misc]
        assert sorted(name for name, _ in table.calls) == [str(number) for number in range(8)]
        assert table.unwatched == [table.watched]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("within", [coordlock.backend.watch_table, coordlock.runtime.promise])
def test_no_watch_is_lost_where_ctrl_c_ends_a_report(version: int, within: ModuleType) -> None:
    for number in range(1, 1000):
        table = Table()
        for name in "abc":
            table.watch(name, version=version)
        report = partial(table.table.report_value, table.watched, 2) if version else table.report
        came = interrupted(report, number, within)
        if table.watched.watches:  # it had not begun
            report()
        assert {name for name, _ in table.calls} == set("abc"), number
        if not came:
            return
    raise AssertionError("it never ended")


def test_nothing_is_called_once_the_table_is_cleared() -> None:
    table = Table()
    cancel = table.watch("first")
    table.table.clear()
    table.report()
    cancel()
    assert table.calls == []
    assert not table.table.watched
