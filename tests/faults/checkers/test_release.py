from __future__ import annotations

from dataclasses import replace

import pytest
from coordlock_faults.events import AcquireInvoked, Reach
from coordlock_faults.release import release

from tests.faults.checkers.story import BOUNDS, Story


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


@pytest.mark.parametrize("reach", [Reach.SERVERS, Reach.NETWORK, Reach.PAUSED])
def test_a_first_answer_may_be_lost_by_a_fault_and_the_second_one_say_less(reach: Reach) -> None:
    for healed, expected in ((510, []), (299, ["FalselyHeld"])):
        story = released(seen=499, held=True)
        story.fault(reach, 100, healed, "c1")
        assert found(story) == expected


@pytest.mark.parametrize("other", ["c1-s1", ""])
def test_not_held_is_right_when_an_operator_removed_another_one_of_the_set(other: str) -> None:
    story = released(seen=520, held=False)
    story.lock = "b"
    story.attempt("c1", 6, invoked=1, granted=10, deadline=890, gone=8, seen=520)
    story.fault(Reach.OPERATOR, 480, 490, "/b/key1")
    first, second = (one for one in story.events if isinstance(one, AcquireInvoked))
    story.events[story.events.index(first)] = replace(first, together="c1-s1")
    story.events[story.events.index(second)] = replace(second, together=other)
    assert found(story) == ([] if other else ["FalselyLost"])


def test_a_release_that_was_not_answered_says_nothing() -> None:
    story = Story(truth=False)
    one = story.attempt("c1", 5, granted=10, deadline=90, released=40, held=False)
    story.events = [
        event for event in story.events if type(event).__name__ != "ReleaseAcknowledged"
    ]
    assert one
    assert found(story) == []
