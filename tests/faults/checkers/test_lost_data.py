"""Where a service loses what it has acknowledged: what that excuses, and for how long."""

from __future__ import annotations

import pytest
from coordlock_faults.events import Act, Reach

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


def test_it_excuses_no_overlap_that_began_before() -> None:
    story = overlap(60)
    story.fault(Reach.DATA, 51, 52, "n1")
    assert broken(story) == ["HeldTogether"]


@pytest.mark.parametrize("reach", [Reach.DATA, Reach.NETWORK])
def test_a_queue_may_be_lost_and_no_other_fault_changes_its_order(reach: Reach) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=100, released=110)
    story.attempt("c2", 6, invoked=2, granted=50, released=60)
    story.fault(reach, 20, 21, "n1")
    expected = [] if reach is Reach.DATA else ["Overtaken"]
    assert broken(story) == expected


@pytest.mark.parametrize("reach", [Reach.DATA, Reach.SERVERS, Reach.NETWORK])
def test_a_lock_may_have_gone_with_the_data_or_a_server_without_a_record(reach: Reach) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, granted=10, deadline=90, released=40, held=False)
    story.fault(reach, 20, 21, "n1")
    assert broken(story) == (["FalselyLost"] if reach is Reach.NETWORK else [])


@pytest.mark.parametrize("reach", [Reach.DATA, Reach.SERVERS])
def test_an_observer_may_be_shown_what_was_before_the_loss(reach: Reach) -> None:
    story = Story(truth=False, lock="folder")
    story.observe("c1", (0, 2, 8), (0, 1, 7))
    story.present(0, 1, 7)
    story.fault(reach, 20, 21, "n1")
    assert ("WentBack" in broken(story)) is (reach is Reach.SERVERS)


@pytest.mark.parametrize("reach", [Reach.DATA, Reach.SERVERS])
def test_an_earlier_leader_may_publish_where_the_later_one_is_not_known(reach: Reach) -> None:
    story = Story(truth=False)
    one = story.attempt("c1", 5, invoked=1, granted=10, lost=30)
    story.call("c1", Act.PUBLISH, 10, at=2, attempt=one)
    story.call("c1", Act.PUBLISH, 11, at=25, attempt=one)
    other = story.attempt("c2", 6, invoked=3, granted=21, released=40)
    story.call("c2", Act.PUBLISH, 20, at=4, attempt=other)
    story.present()
    story.fault(reach, 15, 16, "n1")
    assert ("LatePublication" in broken(story)) is (reach is Reach.SERVERS)
