from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from coordlock_faults.events import Kind, Reach, RunBegan
from coordlock_faults.history import History
from coordlock_faults.verdict import judge

from coordlock.model.claim import Mode, Permit
from testbed.soak.figures import Summary, summary
from tests.faults.checkers import reference
from tests.faults.checkers.reference import EXCLUSIVE, Reference
from tests.faults.checkers.story import BOUNDS, MS, Story


def figures(story: Story) -> Summary:
    history = story.history()
    return summary(history, judge(history, BOUNDS), BOUNDS)


def busy() -> Story:
    """One is paused and overtaken; another one waits for it; a third one gives up."""
    story = Story()
    one = story.attempt("c1", 5, invoked=1, granted=10, lost=81, deadline_then=40, gone=7)
    other = story.attempt("c2", 6, invoked=2, granted=45, released=60, gone=8)
    story.attempt("c3", 9, invoked=12, granted=110, released=120, gone=30)
    story.attempt("c4", 10, invoked=13, failed=50, gone=11)
    story.fault(Reach.PAUSED, 15, 80, "c1")
    story.fault(Reach.NETWORK, 16, 100, "c3")
    story.fault(Reach.NETWORK, 300, 301, "c3")
    story.operation(one, 5, at=12, kind=Kind.ADD, value=1, order=1)
    story.operation(other, 6, at=46, kind=Kind.READ, order=2)
    story.operation(other, 6, at=48, kind=Kind.ADD, value=2, order=3)
    story.operation(one, 5, at=80, kind=Kind.ADD, value=3, refused_by=6)
    story.operation(one, 5, at=80, kind=Kind.ADD, value=4, failed=True)
    story.final_set(1, 2)
    return story


def test_the_figures_are_counted() -> None:
    found = figures(busy())
    assert found.backend == "etcd"
    assert found.seed == 7
    assert found.seconds == 1.0
    assert found.processes == 4
    assert (found.acquires, found.grants, found.losses, found.releases) == (4, 3, 1, 2)
    assert found.failures == {"AcquireTimeout": 1}
    assert (found.offered, found.accepted, found.refused) == (5, 3, 1)
    assert (found.late, found.late_refused) == (2, 1)
    assert found.faults == {"paused": 1, "network": 2}
    assert (found.overlaps, found.longest_overlap) == (1, 0.015)
    assert found.slowest_recovery == 0.01
    assert found.longest_wait == 0.098
    assert found.leaks == 0
    assert set(found.violations.values()) == {0}
    assert list(found.unchecked) == ["leaks, by counting"]


def test_violations_and_leaks_are_counted() -> None:
    story = busy()
    story.contender(40)
    story.count("leases", 1, 2)
    found = figures(story)
    assert found.leaks == 2
    assert found.violations["leaks"] == 2
    assert sum(found.violations.values()) == 2


def test_an_overlap_that_nothing_excuses_is_a_violation_and_not_counted_as_excused() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=22)
    story.attempt("c2", 6, invoked=2, granted=21, released=30)
    found = figures(story)
    assert (found.overlaps, found.violations["exclusion"]) == (0, 1)


@pytest.mark.parametrize(
    ("granted", "next_fault", "expected"),
    [
        (150, None, 0.05),
        (150, 140, None),  # another fault came first
        (90, None, None),  # nobody waited any more
    ],
)
def test_recovery_is_the_time_from_the_end_of_all_faults_to_a_grant_of_a_waiter(
    granted: int, next_fault: int | None, expected: float | None
) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=50, granted=granted, released=granted + 1)
    story.attempt("c2", 7, invoked=170, granted=180, released=181)  # did not wait
    story.fault(Reach.SERVERS, 60, 100, "etcd1")
    if next_fault is not None:
        story.fault(Reach.SERVERS, next_fault, 160, "etcd1")
    assert figures(story).slowest_recovery == expected


def test_readers_and_permits_are_not_late_after_those_they_share_with() -> None:
    for claim in (Mode.PR, Permit(2)):
        story = Story(truth=False)
        one = story.attempt("c1", 5, claim=claim, invoked=1, granted=10, released=30)
        story.attempt("c2", 6, claim=claim, invoked=2, granted=12, released=30)
        story.operation(one, 5, at=20, shared=True, order=1)
        assert figures(story).late == 0


def test_the_text_and_the_json_have_all_figures() -> None:
    found = figures(busy())
    told = json.loads(found.to_json())
    assert Summary(**told) == found
    lines = dict(line.split(maxsplit=1) for line in found.text().splitlines())
    assert lines["acquires"] == "4, 3 granted (1 AcquireTimeout)"
    assert lines["faults"] == "3 (2 network, 1 paused)"
    assert lines["overlaps"] == "1, the longest 0.015 s"
    assert lines["operations"] == "5, 3 accepted, 1 refused"


def test_times_are_counted_from_the_beginning() -> None:
    events = [replace(event, at=event.at + 5_000 * MS) for event in busy().history().events]
    history = History(events, ["c1", "c2"])
    found = summary(history, judge(history, BOUNDS), BOUNDS)
    assert found.seconds == 1.0
    assert found.torn == 2
    assert f"{len(events)}, 2 torn" in found.text()


def test_the_longest_overlap_counts() -> None:
    story = busy()
    story.lock = "b"
    story.attempt("c1", 15, invoked=14, granted=15, lost=81, deadline_then=40, gone=17)
    story.attempt("c2", 16, invoked=14, granted=50, released=58, gone=18)
    found = figures(story)
    assert (found.overlaps, found.longest_overlap) == (2, 0.015)


def test_versions_and_parameters_are_in_the_text() -> None:
    history = busy().history()
    began = history.events[0]
    assert isinstance(began, RunBegan)
    began = replace(began, versions={"etcd": "3.5.9"}, parameters={"ttl": "3s"})
    history = History([began, *history.events[1:]])
    lines = summary(history, judge(history, BOUNDS), BOUNDS).text().splitlines()
    assert "backend           etcd (etcd 3.5.9)" in lines
    assert "ttl               3s" in lines
    assert figures(busy()).text().splitlines()[0] == "backend           etcd"


def test_an_empty_history_has_figures_too() -> None:
    history = History([])
    assert summary(history, judge(history)).grants == 0
    assert summary(history, judge(history)).text()


def test_the_reference_runs_have_something_of_everything() -> None:
    """Else that they pass the checkers would say little."""
    total: Counter[str] = Counter()
    reaches = [Reach.PAUSED, Reach.KILLED, Reach.NETWORK, Reach.SERVERS, Reach.OPERATOR]
    for seed in range(150):
        faults = [reaches[(seed + one) % 5] for one in range(seed % 6)]
        history = History(Reference(seed, claims=EXCLUSIVE, rounds=8, faults=faults).run())
        found = summary(history, judge(history, reference.BOUNDS), reference.BOUNDS)
        total.update(
            overlaps=found.overlaps,
            losses=found.losses,
            refused=found.late_refused,
            failures=len(found.failures),
            recoveries=found.slowest_recovery is not None,
        )
        total.update(found.faults)
    assert min(total[one] for one in ("overlaps", "losses", "refused", "failures")) >= 3, total
    assert total["recoveries"] > 10
    assert min(total[one.name.lower()] for one in reaches) > 10
