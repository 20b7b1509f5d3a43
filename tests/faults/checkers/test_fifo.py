from __future__ import annotations

import pytest
from coordlock_faults.events import Reach

from coordlock.model.claim import Claim, Mode, Permit
from tests.faults.checkers.story import Story, broken


def queue(claims: list[Claim], granted: list[int], *, truth: bool = False) -> Story:
    """Contenders that are all in the queue from the start, and hold for ten milliseconds each."""
    story = Story(truth=truth)
    for number, (claim, at) in enumerate(zip(claims, granted, strict=True)):
        story.attempt(
            f"c{number}",
            5 + number,
            claim=claim,
            invoked=number,
            granted=at,
            released=at + 10,
            gone=100 + at,
        )
    return story


EX, PR = Mode.EX, Mode.PR


@pytest.mark.parametrize(
    ("claims", "granted", "right"),
    [
        ([EX, PR, PR], [10, 32, 31], True),  # they share
        ([PR, EX, PR], [10, 50, 30], False),  # a reader waits for the earlier writer
        ([PR, EX, PR], [10, 30, 50], True),
        ([PR, EX, Mode.NL], [10, 50, 30], True),  # waits for nobody
        ([EX, Mode.PW, PR], [10, 50, 30], False),
        ([EX, Mode.PW, Mode.CR], [10, 50, 30], True),
    ],
)
def test_those_that_share_are_granted_in_any_order(
    claims: list[Claim], granted: list[int], right: bool
) -> None:
    found = broken(queue(claims, granted))
    assert found == ([] if right else ["Overtaken"])


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


def test_permits_by_the_ground_truth() -> None:
    for gone, expected in ((9, []), (20, ["NeverFirst"])):
        story = Story()
        story.contender(5, gone, claim=Permit(2))
        story.contender(6, 21, claim=Permit(2))
        story.attempt("c2", 7, claim=Permit(2), invoked=2, granted=30, released=50, gone=10)
        assert broken(story) == expected
