"""What the benchmark's figures rest on: its statistics, its turns, its workers."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.__main__ import SECTIONS
from bench.contestants import ENTRANTS, entrants
from bench.environments import OURS, Environment, NotInstalled
from bench.field import turns
from bench.figures import Spread, percentile, ratios, spread
from bench.plots import draw
from bench.table import Plot, Table
from bench.workers import Worker, WorkerFailed


def test_a_percentile_is_the_smallest_sample_that_so_many_do_not_exceed() -> None:
    samples = list(range(100, 0, -1))
    assert percentile(samples, 99) == 99
    assert percentile(samples, 50) == 50
    assert percentile([7.0], 99) == 7.0


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was ten times as slow in the second round, for both.
    assert ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == Spread(2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="argument 2 is longer"):
        ratios([1.0], [1.0, 2.0])


def test_a_single_sample_has_no_spread() -> None:
    assert spread([3.0]) == Spread(3.0, 3.0, 3.0)


def test_each_takes_part_in_every_round_and_goes_first_in_turn() -> None:
    three = list(ENTRANTS[:3])
    order = [one for _, one in turns(three, 2)]
    assert order[:3] == three
    assert order[3:6] == [three[1], three[2], three[0]]
    assert order[6:] == [three[2], three[0], three[1]]


@pytest.mark.parametrize("service", ["zookeeper", "etcd", "local"])
def test_on_each_service_there_are_a_floor_coordlock_and_a_peer(service: str) -> None:
    assert {one.role for one in entrants(service)} == {"floor", "coordlock", "peer"}
    assert entrants(service)[0].role == "floor"
    names = [one.name for one in entrants(service)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_can_be_measured(section: str) -> None:
    assert callable(importlib.import_module(f"bench.{section}").measure)


def test_a_peer_whose_command_is_missing_is_not_installed() -> None:
    with pytest.raises(NotInstalled, match="no-such-command"):
        Environment("none", command="no-such-command").python()


def test_a_worker_obeys_and_says_what_went_wrong(tmp_path: Path) -> None:
    subject = "bench.contestants.file_locks:Flock"
    with Worker(subject, str(tmp_path), "", environment=OURS) as worker:
        assert len(worker.do("pairs", name="orders", calls=3)) == 3
        held = worker.do("hold", name="orders")
        assert worker.do("let_go", name="orders") >= held
        with pytest.raises(WorkerFailed, match="KeyError"):
            worker.do("let_go", name="orders")
        with pytest.raises(WorkerFailed, match="no_such_order"):
            worker.do("no_such_order")
        assert worker.do("cpu") > 0


def test_a_worker_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(WorkerFailed, match="ModuleNotFoundError"),
        Worker("bench.contestants.nobody:Nobody"),
    ):
        pass


def test_who_waits_is_granted_after_the_release(tmp_path: Path) -> None:
    subject = "bench.contestants.file_locks:Flock"
    with Worker(subject, str(tmp_path), "") as holder, Worker(subject, str(tmp_path), "") as waiter:
        holder.do("hold", name="orders")
        waiter.tell("wait", name="orders")
        released = holder.do("let_go", name="orders")
        assert waiter.answer() >= released


@pytest.fixture
def table() -> Table:
    table = Table("Title", ("who", "x floor"), ["under load"], Plot("x floor", "who", target=1.1))
    table.add("coordlock", Spread(1.25, 1.0, 1.5))
    table.add("etcdctl", 123.4)
    table.add("absent", None)
    return table


def test_a_table_is_text_markdown_and_json(table: Table) -> None:
    text = table.text().splitlines()
    assert text[0] == "Title"
    assert text[4].split() == ["coordlock", "1.25", "(1.00", "to", "1.50)"]
    assert text[5].split() == ["etcdctl", "123"]
    assert text[7] == "! under load"
    assert table.markdown().splitlines()[2] == "| coordlock | 1.25 (1.00 to 1.50) |"
    assert json.loads(json.dumps(asdict(table)))["rows"][0]["x floor"]["median"] == 1.25


def test_a_picture_is_drawn_of_bars_and_of_lines(table: Table, tmp_path: Path) -> None:
    lines = Table("Lines", ("service", "waiters", "speed"))
    lines.plot = Plot("speed", "service", over="waiters", log=True, target=3.0)
    for waiters in (10, 100):
        lines.add("etcd", waiters, 5.0)
    draw([table, lines], tmp_path / "both")
    assert "<svg" in (tmp_path / "both.svg").read_text()
    draw([Table("None", ("who",))], tmp_path / "none")
    assert not (tmp_path / "none.svg").exists()
