from __future__ import annotations

import pytest
from coordlock_faults.events import Reach

from tests.faults.checkers.story import QUIET, Story, broken


def test_contenders_of_live_grants_are_no_leak() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=20, gone=7)
    story.attempt("c2", 6, invoked=2, granted=21)
    assert broken(story) == []


@pytest.mark.parametrize("end", ["released", "lost", "failed"])
def test_a_contender_that_is_left_over_is_found(end: str) -> None:
    story = Story()
    story.attempt("c0", 4, invoked=1, granted=2, released=3, gone=5)
    match end:
        case "released":
            story.attempt("c1", 6, invoked=4, granted=10, released=20)
        case "lost":
            story.attempt("c1", 6, invoked=4, granted=10, lost=20)
        case "failed":
            story.attempt("c1", 6, invoked=4, failed=20)
    assert broken(story) == ["Leaked"]


def test_a_contender_that_was_lost_a_moment_before_the_survey_may_be_left() -> None:
    surveyed = QUIET + 1
    for lost, expected in ((surveyed - 9, []), (surveyed - 10, ["Leaked"])):
        story = Story()
        story.attempt("c1", 6, invoked=4, granted=10, lost=lost)
        assert broken(story) == expected


def test_a_contender_of_nobody_is_found() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=20, gone=7)
    story.contender(6)
    assert broken(story) == ["Leaked"]


def test_a_worker_that_waits_for_its_next_item_for_too_long_is_found() -> None:
    surveyed = QUIET + 1
    for released, expected in ((surveyed - 99, []), (surveyed - 101, ["Leaked"])):
        story = Story(lock="@work-q")
        story.attempt("c1", 6, invoked=4, granted=10, released=released)
        assert broken(story) == expected


def test_the_contender_of_a_process_that_was_killed_is_gone_too() -> None:
    for gone, expected in ((7, []), (None, ["Leaked"])):
        story = Story()
        story.attempt("c1", 5, invoked=1, granted=10, gone=gone)
        story.fault(Reach.KILLED, 20, 21, "c1")
        assert broken(story) == expected


def test_a_grant_without_a_contender_is_found() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, gone=7)
    assert "Missing" in broken(story)


@pytest.mark.parametrize(
    ("before", "after", "right"),
    [(3, 3, True), (3, 2, True), (3, 4, False), (0, 1, False), (None, 1, False), (1, None, False)],
)
def test_counts_return_to_their_baseline(
    before: int | None, after: int | None, right: bool
) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    story.count("leases", 2, 2)
    story.count("threads of c1", before, after)
    assert broken(story) == ([] if right else ["Leaked"])


def test_who_counts_the_same_counts_for_itself() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    story.count("threads", 2, 3, by="c1")
    story.count("threads", 4, 3, by="c2")
    assert broken(story) == ["Leaked"]


def test_who_was_killed_need_not_count_again() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10)
    story.count("threads of c1", 2, None, by="c1")
    assert broken(story) == ["Leaked"]
    story.fault(Reach.KILLED, 20, 21, "c1")
    assert broken(story) == []


def test_who_releases_after_the_survey_was_a_holder_in_it() -> None:
    for at, expected in ((QUIET + 2, []), (QUIET + 1, ["Leaked"])):
        story = Story()
        story.attempt("c1", 5, invoked=1, granted=10, released=at)
        assert broken(story) == expected
