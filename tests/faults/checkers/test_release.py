from __future__ import annotations

import pytest
from coordlock_faults.events import Reach
from coordlock_faults.release import FalselyHeld, release

from tests.faults.checkers.story import BOUNDS, Story, broken


def released(*, seen: int, held: bool, patience: int | None = 100, deadline: int = 890) -> Story:
    """Released at 500, which is answered at 520; the contender is seen gone at ``seen``."""
    story = Story()
    story.attempt(
        "c1",
        5,
        invoked=1,
        granted=10,
        deadline=deadline,
        released=500,
        acked=520,
        held=held,
        patience=patience,
        gone=7,
        seen=seen,
    )
    return story


def found(story: Story) -> list[str]:
    return [type(one).__name__ for one in release(story.history(), BOUNDS)]


def test_a_release_that_removed_the_contender_was_held() -> None:
    assert broken(released(seen=510, held=True)) == []


def test_held_is_wrong_where_the_service_has_answered_that_it_was_not() -> None:
    assert found(released(seen=499, held=True)) == ["FalselyHeld"]
    assert found(released(seen=500, held=True)) == []


def test_how_long_it_had_been_gone_is_told() -> None:
    [violation] = release(released(seen=490, held=True).history(), BOUNDS)
    assert isinstance(violation, FalselyHeld)
    assert violation.what == (
        "c1 was told that it still held a (token 5), and its contender had gone 10.000 ms or more "
        "before"
    )


@pytest.mark.parametrize("patience", [None, 20, 19])
def test_where_the_service_has_not_answered_held_is_what_the_client_thought(
    patience: int | None,
) -> None:
    assert found(released(seen=499, held=True, patience=patience)) == []


def test_a_holder_that_was_to_know_long_before_knows_without_an_answer() -> None:
    """After the bounds for notice and signal: 200 and 10."""
    assert found(released(seen=290, held=True, patience=None)) == []
    assert found(released(seen=289, held=True, patience=None)) == ["FalselyHeld"]


@pytest.mark.parametrize("reach", [Reach.SERVERS, Reach.NETWORK, Reach.PAUSED])
def test_a_first_answer_may_be_lost_by_a_fault_and_the_second_one_say_less(reach: Reach) -> None:
    for healed, expected in ((510, []), (299, ["FalselyHeld"])):
        story = released(seen=499, held=True)
        story.fault(reach, 100, healed, "c1")
        assert found(story) == expected


def test_held_is_wrong_after_the_loss_was_signalled() -> None:
    for lost, expected in ((39, ["FalselyHeld"]), (41, [])):
        story = Story(truth=False)
        story.attempt("c1", 5, granted=10, released=40, held=True, lost=lost, deadline_then=50)
        assert broken(story) == expected


def test_not_held_is_wrong_where_nothing_has_ended_the_hold() -> None:
    assert broken(released(seen=520, held=False)) == ["FalselyLost"]


@pytest.mark.parametrize("reach", [Reach.SERVERS, Reach.NETWORK, Reach.PAUSED, Reach.CLOCKS])
def test_no_fault_ends_a_hold_before_the_deadline(reach: Reach) -> None:
    story = released(seen=520, held=False)
    story.fault(reach, 400, 510, "c1")
    assert broken(story) == ["FalselyLost"]


@pytest.mark.parametrize(("deadline", "right"), [(520, True), (521, False)])
def test_not_held_is_right_when_the_deadline_had_passed(deadline: int, right: bool) -> None:
    assert broken(released(seen=520, held=False, deadline=deadline)) == (
        [] if right else ["FalselyLost"]
    )


def test_not_held_is_right_when_the_loss_was_signalled() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, granted=10, deadline=90, released=40, lost=39, deadline_then=90)
    assert broken(story) == []


@pytest.mark.parametrize(("target", "right"), [("/a/key1", True), ("/a/key2", False)])
def test_not_held_is_right_when_an_operator_removed_the_contender(target: str, right: bool) -> None:
    story = released(seen=520, held=False)
    story.fault(Reach.OPERATOR, 480, 490, target)
    assert broken(story) == ([] if right else ["FalselyLost"])


def test_without_the_ground_truth_any_removal_may_have_been_of_this_contender() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, granted=10, deadline=90, released=40, held=False)
    assert broken(story) == ["FalselyLost"]
    story.fault(Reach.OPERATOR, 20, 21, "some key")
    assert broken(story) == []


def test_what_the_service_removed_before_is_not_the_releases_fault() -> None:
    assert broken(released(seen=499, held=False)) == ["EarlyRemoval"]


def test_a_release_that_was_not_answered_says_nothing() -> None:
    story = Story(truth=False)
    one = story.attempt("c1", 5, granted=10, deadline=90, released=40, held=False)
    story.events = [
        event for event in story.events if type(event).__name__ != "ReleaseAcknowledged"
    ]
    assert one
    assert found(story) == []
