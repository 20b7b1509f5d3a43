from __future__ import annotations

from dataclasses import replace

from coordlock_faults.events import AcquireInvoked
from coordlock_faults.sets import InPart, OutOfOrder, sets

from tests.faults.checkers.story import BOUNDS, Story


def asked_together(**tokens: int | None) -> Story:
    """c1 and c2 each ask for locks a and b at once; tokens are given by lock and client."""
    story = Story(truth=False)
    for process, start in (("c1", 1), ("c2", 2)):
        for lock in "ab":
            story.lock = lock
            token = tokens[f"{process}_{lock}"]
            if token is None:
                story.attempt(process, invoked=start, failed=40)
            else:
                at = 10 if process == "c1" else 30
                story.attempt(process, token, invoked=start, granted=at, released=at + 10)
    story.events = [
        replace(one, together=f"{one.process}-s1") if isinstance(one, AcquireInvoked) else one
        for one in story.events
    ]
    return story


def test_sets_that_are_granted_one_after_the_other_are_right() -> None:
    story = asked_together(c1_a=5, c1_b=5, c2_a=6, c2_b=6)
    assert sets(story.history(), BOUNDS) == []


def test_a_set_that_is_granted_in_part_is_found() -> None:
    story = asked_together(c1_a=5, c1_b=5, c2_a=6, c2_b=None)
    [found] = sets(story.history(), BOUNDS)
    assert isinstance(found, InPart)
    assert "of c2-s1 a was granted, and b was not" in str(found)


def test_a_set_that_is_refused_as_a_whole_is_right() -> None:
    story = asked_together(c1_a=5, c1_b=5, c2_a=None, c2_b=None)
    assert sets(story.history(), BOUNDS) == []


def test_two_sets_that_stand_in_different_orders_are_found() -> None:
    story = asked_together(c1_a=5, c1_b=8, c2_a=6, c2_b=7)
    found = sets(story.history(), BOUNDS)
    assert {type(one) for one in found} == {OutOfOrder}
    assert "c1-s1 stands before c2-s1 on a, and behind it on b" in str(found[0])
