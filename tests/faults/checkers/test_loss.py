from __future__ import annotations

import pytest
from coordlock_faults.events import Reach
from coordlock_faults.loss import LateSignal, loss

from tests.faults.checkers.story import BOUNDS, MS, Story, broken


def lost_at(at: int) -> Story:
    """Cut off at 20; the deadline is at 40, the service removes the contender later."""
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, lost=at, deadline_then=40, gone=7)
    story.fault(Reach.NETWORK, 20, 70, "c1")
    return story


@pytest.mark.parametrize("at", [30, 40, 50])
def test_a_signal_until_the_deadline_or_a_little_later_is_right(at: int) -> None:
    assert broken(lost_at(at)) == []


def test_a_signal_that_comes_later_is_found() -> None:
    story = lost_at(53)
    (found,) = loss(story.history(), BOUNDS)
    assert isinstance(found, LateSignal)
    assert found.late == 13 * MS
    assert broken(story) == ["LateSignal"]


@pytest.mark.parametrize(
    ("pauses", "right"),
    [
        ([(30, 100)], True),  # due when the process goes on
        ([(45, 100)], True),  # it had no time to tell of it
        ([(30, 60), (65, 100)], True),  # nor had it here
        ([(30, 90)], False),  # it had time
        ([(51, 100)], False),
        ([(20, 39)], False),
    ],
)
def test_while_the_process_is_paused_the_signal_is_not_due(
    pauses: list[tuple[int, int]], right: bool
) -> None:
    story = lost_at(102)
    for began, healed in pauses:
        story.fault(Reach.PAUSED, began, healed, "c1")
    assert broken(story) == ([] if right else ["LateSignal"])


def test_the_pause_of_another_process_does_not_matter() -> None:
    story = lost_at(102)
    story.fault(Reach.PAUSED, 30, 100, "c2")
    assert broken(story) == ["LateSignal"]


def test_a_wall_clock_that_jumps_suspends_nothing() -> None:
    story = lost_at(102)
    story.fault(Reach.CLOCKS, 30, 31, "c1")
    assert broken(story) == ["LateSignal"]


def test_after_a_release_nobody_need_be_told() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=39, lost=80, deadline_then=40, gone=7)
    assert broken(story) == []


def test_a_holder_that_is_never_told_is_found_by_the_ground_truth() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, gone=7, seen=50)
    assert broken(story) == ["Missing", "MissingSignal"]


def test_a_holder_is_told_in_time_after_its_contender_has_gone() -> None:
    for at, expected in ((260, []), (261, ["MissingSignal"])):
        story = Story()
        story.attempt("c1", 5, invoked=1, granted=10, lost=at, gone=7, seen=50)
        assert broken(story) == expected
        if expected:
            story.fault(Reach.PAUSED, 60, 255, "c1")
            assert broken(story) == []


@pytest.mark.parametrize("seen", [39, 40, 41])
def test_a_contender_that_the_service_removes_before_the_deadline_is_found(seen: int) -> None:
    """Or whose deadline is counted from the reply."""
    story = Story()
    story.attempt(
        "c1", 5, invoked=1, granted=10, deadline=30, lost=40, deadline_then=40, gone=7, seen=seen
    )
    story.fault(Reach.NETWORK, 20, 70, "c1")
    assert broken(story) == (["EarlyRemoval"] if seen < 40 else [])


def test_a_contender_that_was_released_may_go_at_once() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, deadline=40, released=20, gone=7, seen=20)
    assert broken(story) == []


def test_how_much_too_early_it_went_is_told() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, deadline=40, lost=41, gone=7, seen=27)
    (found,) = loss(story.history(), BOUNDS)
    assert found.what == (
        "the service removed token 5 of c1 from a 13.000 ms or more before the deadline"
    )


def test_one_that_goes_before_its_release_does_not_go_by_it() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, deadline=40, released=20, gone=7, seen=19)
    assert broken(story) == ["EarlyRemoval"]


def test_what_happens_after_a_process_was_killed_is_not_its_loss() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, deadline=40, gone=7, seen=21)
    story.fault(Reach.KILLED, 20, 21, "c1")
    assert broken(story) == []
