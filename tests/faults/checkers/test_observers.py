from __future__ import annotations

import pytest
from coordlock_faults.events import Act
from coordlock_faults.observers import NotShown, WentBack, observers

from tests.faults.checkers.story import BOUNDS, Story, broken


def election(*shown: tuple[int, ...], present: tuple[int, ...] = (6, 20)) -> Story:
    """c1 leads with 10, then with 11; c2 follows, and leads with 20. c3 observes."""
    story = Story(truth=False)
    one = story.attempt("c1", 5, invoked=1, granted=10, released=20)
    story.call("c1", Act.PUBLISH, 10, at=2, attempt=one)
    story.call("c1", Act.PUBLISH, 11, at=12, attempt=one)
    other = story.attempt("c2", 6, invoked=3, granted=21)
    story.call("c2", Act.PUBLISH, 20, at=4, attempt=other)
    story.observe("c3", *shown)
    story.present(*present)
    return story


def values(*shown: tuple[int, ...]) -> Story:
    story = Story(truth=False, lock="folder")
    story.observe("c3", *shown)
    story.present(*shown[-1])
    return story


def test_an_observer_that_is_shown_all_or_some_of_it_in_order_is_right() -> None:
    assert broken(election((), (5, 10), (5, 11), (), (6, 20))) == []
    assert broken(election((5, 11), (6, 20))) == []


def test_an_observer_that_is_not_shown_the_present_is_found() -> None:
    [found] = observers(election((5, 10), (5, 11)).history(), BOUNDS)
    assert isinstance(found, NotShown)
    assert "was shown (5, 11) in the end, and the present is (6, 20)" in str(found)
    [found] = observers(election().history(), BOUNDS)
    assert "was shown nothing in the end" in str(found)


@pytest.mark.parametrize(
    ("shown", "what"),
    [
        (((5, 11), (5, 10), (6, 20)), "was shown 5 with 10 after 11"),
        (((6, 20), (5, 11), (6, 20)), "was shown token 5 after token 6"),
        (((5, 10), (), (5, 11), (6, 20)), "was shown 5 again, which had gone"),
    ],
)
def test_an_observer_of_an_election_that_goes_back_is_found(
    shown: tuple[tuple[int, ...], ...], what: str
) -> None:
    found = observers(election(*shown).history(), BOUNDS)
    assert {type(one) for one in found} == {WentBack}
    assert what in str(found[0])


def test_values_whose_versions_grow_are_right_and_others_are_found() -> None:
    assert observers(values((0, 1, 7), (0, 1, 7, 1, 1, 8), (0, 3, 9, 1, 1, 8)).history()) == []
    [found] = observers(values((0, 2, 7), (0, 1, 6)).history(), BOUNDS)
    assert isinstance(found, WentBack)
    assert "was shown 0 with 1 after 2" in str(found)
