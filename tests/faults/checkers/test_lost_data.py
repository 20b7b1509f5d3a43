"""Where a service loses what it has acknowledged: what that excuses, and for how long."""

from __future__ import annotations

import pytest
from coordlock_faults.events import Reach

from tests.faults.checkers.story import Story, broken


def overlap(until: int) -> Story:
    """c1 holds on ``until`` then beside c2, which was granted at 50."""
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, lost=until)
    story.attempt("c2", 6, invoked=2, granted=50, released=300)
    return story


def test_it_excuses_an_overlap_only_until_the_holder_must_have_been_told() -> None:
    for until, expected in ((231, []), (232, ["HeldTogether"])):
        story = overlap(until)
        story.fault(Reach.DATA, 20, 21, "n1")
        assert broken(story) == expected


@pytest.mark.parametrize("reach", [Reach.DATA, Reach.NETWORK])
def test_a_queue_may_be_lost_and_no_other_fault_changes_its_order(reach: Reach) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=100, released=110)
    story.attempt("c2", 6, invoked=2, granted=50, released=60)
    story.fault(reach, 20, 21, "n1")
    expected = [] if reach is Reach.DATA else ["Overtaken"]
    assert broken(story) == expected
