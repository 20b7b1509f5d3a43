from __future__ import annotations

from tests.faults.checkers.story import QUIET, Story, broken


def test_a_contender_that_was_lost_a_moment_before_the_survey_may_be_left() -> None:
    surveyed = QUIET + 1
    for lost, expected in ((surveyed - 9, []), (surveyed - 10, ["Leaked"])):
        story = Story()
        story.attempt("c1", 6, invoked=4, granted=10, lost=lost)
        assert broken(story) == expected


def test_a_worker_that_waits_for_its_next_item_for_too_long_is_found() -> None:
    surveyed = QUIET + 1
    for released, expected in ((surveyed - 99, []), (surveyed - 101, ["Leaked"])):
        story = Story(lock="@work-q")
        story.attempt("c1", 6, invoked=4, granted=10, released=released)
        assert broken(story) == expected
