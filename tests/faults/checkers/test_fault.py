from __future__ import annotations

import pytest
from coordlock_faults.completeness import completeness
from coordlock_faults.events import FOREVER, FaultBegan, FaultHealed, Reach
from coordlock_faults.fault import Fault, Faults

from tests.faults.checkers.story import BOUNDS, QUIET, Story


def fault(began: int, healed: int | None, reach: Reach = Reach.PAUSED, *targets: str) -> Fault:
    end = None if healed is None else FaultHealed(healed, "nemesis", "f")
    return Fault(FaultBegan(began, "nemesis", "f", "stop", reach, targets or ("c1",)), end)


@pytest.mark.parametrize(
    ("start", "end", "met"),
    [(5, 9, False), (5, 10, True), (12, 13, True), (5, 30, True), (20, 30, True), (21, 30, False)],
)
def test_a_fault_is_there_from_its_beginning_to_its_end(start: int, end: int, met: bool) -> None:
    assert fault(10, 20).meets(start, end) is met


def test_a_fault_that_was_never_healed_lasts_forever() -> None:
    assert fault(10, None).meets(FOREVER, FOREVER)
    assert Faults([fault(10, None)]).calm(100) == [(0, 10)]


def test_it_is_calm_when_no_fault_is_there() -> None:
    faults = Faults([fault(40, 50), fault(10, 20), fault(15, 30), fault(16, 18), fault(30, 35)])
    assert faults.calm(100) == [(0, 10), (35, 40), (50, 100)]
    assert faults.calm(50) == [(0, 10), (35, 40)]
    assert Faults([]).calm(100) == [(0, 100)]


def test_a_process_runs_again_after_pauses_that_leave_it_no_time() -> None:
    faults = Faults([fault(10, 20), fault(23, 30), fault(40, 50)])
    assert faults.running("c1", since=5, slack=4) == 5
    assert faults.running("c1", since=6, slack=4) == 30
    assert faults.running("c1", since=21, slack=1) == 21
    assert faults.running("c2", since=6, slack=4) == 6


def test_the_first_kill_is_what_ended_a_process() -> None:
    first, second = fault(10, 20, Reach.KILLED, "c1"), fault(30, 40, Reach.KILLED, "c1", "c2")
    faults = Faults([second, first])
    assert faults.kill("c1") is first.began
    assert faults.kill("c2") is second.began
    assert faults.kill("c3") is None


def test_when_a_fault_began_and_when_it_was_healed_is_told() -> None:
    for healed in (QUIET + 5, None):
        story = Story(truth=False)
        story.attempt("c1", 5, invoked=1, granted=10, released=20)
        story.fault(Reach.NETWORK, 10, healed, "c1")
        (found,) = completeness(story.history(), BOUNDS)
        assert "FaultBegan" in str(found)
        assert ("FaultHealed" in str(found)) is (healed is not None)
