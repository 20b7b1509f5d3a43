"""The report on a soak: its figures are those of its runs."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from coordlock_faults.events import Kind, Reach
from coordlock_faults.history import History
from coordlock_faults.verdict import judge

from testbed.soak.figures import summary
from testbed.soak.judgement import Judgement
from testbed.soak.picture import draw
from testbed.soak.plan import Plan
from testbed.soak.report import Report
from tests.faults.checkers.story import BOUNDS, Story


def judgement(history: History) -> Judgement:
    verdict = judge(history, BOUNDS)
    figures = summary(history, verdict, BOUNDS)
    return Judgement(BOUNDS, history, verdict, figures, ())


def leaking() -> History:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    return story.history()


@pytest.fixture
def report() -> Report:
    report = Report("etcd", {"nodes": "3"})
    story = Story()
    first = story.attempt("c1", 5, invoked=1, granted=10, lost=81, deadline_then=40, gone=7)
    second = story.attempt("c2", 6, invoked=2, granted=45, released=60, gone=8)
    story.fault(Reach.PAUSED, 15, 80, "c1")
    story.operation(second, 6, at=46, kind=Kind.READ, order=1)
    story.operation(first, 5, at=80, kind=Kind.READ, refused_by=6)
    report.add(Plan("modes", 1), judgement(story.history()), 0.0)
    return report


def test_the_figures_of_runs_are_added_up(report: Report) -> None:
    report.add(Plan("modes", 2), judgement(leaking()), 1.5)
    told = report.figures()
    assert (told["runs"], told["acquires"], told["grants"], told["releases"]) == (2, 3, 3, 2)
    assert (told["overlaps"], told["late"], told["late_refused"], told["refused"]) == (1, 1, 1, 1)
    assert told["late_accepted"] == 0
    assert told["longest_overlap"] == 0.015
    assert told["faults"] == {"paused": 1}
    assert told["runs_by_workload"] == {"modes": 2}
    assert json.loads(json.dumps(report.to_dict()))["each_run"][0]["grants"] == 2


def test_a_soak_holds_if_every_run_does(report: Report) -> None:
    assert report.holds


def test_a_run_that_failed_is_told_with_the_command_that_does_it_again(report: Report) -> None:
    report.fail(Plan("modes", 2, ttl=3), Path("kept/etcd-modes-2"), "Leaked: a key")
    assert not report.holds
    text = report.text()
    assert "run modes-2, whose history is in kept/etcd-modes-2:\nLeaked: a key\n" in text
    again = "etcd --runs 1 --seed 2 --workloads modes --seconds 10 --clients 4 --ttl 3 --given 0"
    assert f"once more: make soak ARGS='{again}'" in text


def test_a_run_that_the_service_broke_is_told_and_fails_nothing(report: Report) -> None:
    report.broken["modes-2"] = "/modes-2/lock0/x__lock__0000000007 is there for n1 alone"
    assert report.holds
    text = report.text()
    assert "without a verdict" in text
    assert "run modes-2: /modes-2/lock0/x__lock__0000000007 is there for n1 alone\n" in text
    assert json.loads(json.dumps(report.to_dict()))["runs_broken_by_the_server"] == report.broken


def test_a_soak_that_was_given_up_does_not_hold(report: Report) -> None:
    report.in_vain = True
    assert not report.holds


def test_the_command_names_the_faults_if_they_were_chosen() -> None:
    assert "--faults compact defragment" in Plan(
        "modes", 2, faults=("compact", "defragment")
    ).command("etcd")
    assert "--calm" in Plan("modes", 2, faults=()).command("etcd")


def test_a_soak_without_runs_proves_nothing() -> None:
    report = Report("etcd", {})
    assert not report.holds
    assert report.text()


def test_the_picture_shows_each_fault_and_what_was_refused(report: Report, tmp_path: Path) -> None:
    report.add(Plan("modes", 2), judgement(leaking()), 1.5)
    draw(report, tmp_path / "soak.svg")
    picture = "".join(ET.parse(tmp_path / "soak.svg").getroot().itertext())
    for words in ("paused", "client paused", "violations: 1", "overlaps, excused: 1"):
        assert words in picture
    assert "refused by the fence: 1" in picture
