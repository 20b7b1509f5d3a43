from __future__ import annotations

import pytest
from coordlock_faults.events import Act, Reach
from coordlock_faults.published import (
    LatePublication,
    NeverPublished,
    NotThere,
    published,
)

from coordlock.model.claim import Mode
from tests.faults.checkers.story import BOUNDS, Story, broken


def group(*present: int) -> Story:
    """c1 joins with 10, and publishes 11; c2 joins with 20, publishes 21 in vain, and is killed."""
    story = Story(truth=False)
    one = story.attempt("c1", 5, claim=Mode.NL, invoked=1, granted=3)
    story.call("c1", Act.PUBLISH, 10, at=2, attempt=one)
    story.call("c1", Act.PUBLISH, 11, at=12, attempt=one)
    story.call("c1", Act.PUBLISH, 12, at=15, attempt=one, raised="BackendUnavailable")
    other = story.attempt("c2", claim=Mode.NL, invoked=5)
    story.call("c2", Act.PUBLISH, 20, at=6, attempt=other, returned=None)
    story.fault(Reach.KILLED, 30, 31, "c2")
    story.present(*present)
    return story


@pytest.mark.parametrize("present", [(5, 11), (5, 12)])
def test_a_group_that_shows_its_members_is_right(present: tuple[int, int]) -> None:
    story = group(*present)
    story.observe("c3", (5, 10), (5, 11, 6, 20), present)
    story.call("c3", Act.READ, at=25, returned=(5, 11, 6, 20))
    assert broken(story) == []


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ((5, 99), "was told of 99 in a: nobody published it"),
        ((6, 11), "was told of 11 with 6, and that is another's"),
        ((5, 20), "was told of 20 with 5, and that is another's"),
    ],
)
def test_a_member_that_is_none_is_found(told: tuple[int, ...], what: str) -> None:
    story = group(5, 11)
    story.call("c3", Act.READ, at=20, returned=(6, 20))
    story.call("c3", Act.READ, at=25, returned=told)
    [found] = published(story.history(), BOUNDS)
    assert isinstance(found, NeverPublished)
    assert what in str(found)


@pytest.mark.parametrize(
    ("present", "what"),
    [
        ((), "c1 is in a by 5, and is not told"),
        ((5, 11, 6, 20), "a has 6, and nobody is there by it"),
        ((5, 10), "a has 10 of c1, which published another since"),
    ],
)
def test_a_group_whose_end_is_not_who_is_there_is_found(
    present: tuple[int, ...], what: str
) -> None:
    [found] = published(group(*present).history(), BOUNDS)
    assert isinstance(found, NotThere)
    assert what in str(found)


def elections(at: int, *, raised: str = "", claim: Mode = Mode.EX) -> Story:
    """c1 is cut off, and c2 is elected at 21; c1 publishes once more."""
    story = Story(truth=False)
    one = story.attempt("c1", 5, claim=claim, invoked=1, granted=10, lost=30)
    story.call("c1", Act.PUBLISH, 10, at=2, attempt=one)
    story.call("c1", Act.PUBLISH, 11, at=at, attempt=one, raised=raised)
    other = story.attempt("c2", 6, claim=claim, invoked=3, granted=21, released=40)
    story.call("c2", Act.PUBLISH, 20, at=4, attempt=other)
    story.present()
    return story


def test_a_proclamation_that_is_taken_after_the_next_term_has_begun_is_found() -> None:
    [found] = published(elections(25).history(), BOUNDS)
    assert isinstance(found, LatePublication)
    assert "a took 11 of token 5 after token 6 was granted" in str(found)
