from __future__ import annotations

import pytest
from coordlock_faults.events import Reach

from tests.faults.checkers.story import Story, broken


def lost_at(at: int) -> Story:
    """Cut off at 20; the deadline is at 40, the service removes the contender later."""
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, lost=at, deadline_then=40, gone=7)
    story.fault(Reach.NETWORK, 20, 70, "c1")
    return story


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


def test_a_holder_that_is_never_told_is_found_by_the_ground_truth() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, gone=7, seen=50)
    assert broken(story) == ["Missing", "MissingSignal"]
