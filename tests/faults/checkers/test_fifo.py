from __future__ import annotations

from coordlock_faults.events import Reach

from coordlock.model.claim import Mode
from tests.faults.checkers.story import Story, broken

EX, PR = Mode.EX, Mode.PR


def test_who_was_paused_may_have_expired_and_is_not_overtaken() -> None:
    """Its grant came late, and it was told of it later still."""
    for process, expected in (("c1", []), ("c2", ["Overtaken"])):
        story = Story(truth=False)
        story.attempt("c1", 5, invoked=1, granted=90, lost=91, deadline_then=50)
        story.attempt("c2", 6, invoked=2, granted=60, released=70)
        story.fault(Reach.PAUSED, 20, 89, process)
        assert [one for one in broken(story) if one == "Overtaken"] == expected


def test_contenders_of_others_count_too() -> None:
    """Of other programs, or of attempts whose token nobody knows."""
    for gone, expected in ((7, []), (9, ["NeverFirst"])):
        story = Story()
        story.contender(5, gone)
        story.attempt("c2", 6, invoked=2, granted=30, released=50, gone=8)
        assert broken(story) == expected
