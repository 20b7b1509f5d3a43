from __future__ import annotations

import pytest
from coordlock_faults.events import Reach
from coordlock_faults.fifo import fifo

from coordlock.model.claim import Claim, Mode, Permit
from tests.faults.checkers.story import BOUNDS, Story, broken


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


def test_grants_in_the_order_of_tokens_are_right() -> None:
    assert broken(queue([EX] * 3, [10, 30, 50])) == []
    assert broken(queue([EX] * 3, [10, 30, 50], truth=True)) == []


def test_a_grant_before_that_of_an_earlier_contender_is_found() -> None:
    assert broken(queue([EX] * 3, [10, 50, 30])) == ["Overtaken"]
    found = broken(queue([EX] * 3, [10, 50, 30], truth=True))
    assert found == ["NeverFirst", "Overtaken"]


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


@pytest.mark.parametrize(
    ("granted", "right"),
    [
        ([10, 11, 21, 22], True),
        ([10, 11, 23, 22], True),  # one place became free, then another one
        ([10, 30, 11, 31], True),  # the second one was first, and slow to say so
        ([10, 40, 41, 21], False),  # two earlier ones were there
    ],
)
def test_a_permit_waits_while_there_are_as_many_earlier_ones(
    granted: list[int], right: bool
) -> None:
    story = queue([Permit(2)] * 4, granted)
    assert broken(story) == ([] if right else ["Overtaken"])


def test_who_was_paused_may_have_expired_and_is_not_overtaken() -> None:
    """Its grant came late, and it was told of it later still."""
    for process, expected in (("c1", []), ("c2", ["Overtaken"])):
        story = Story(truth=False)
        story.attempt("c1", 5, invoked=1, granted=90, lost=91, deadline_then=50)
        story.attempt("c2", 6, invoked=2, granted=60, released=70)
        story.fault(Reach.PAUSED, 20, 89, process)
        assert [one for one in broken(story) if one == "Overtaken"] == expected


def test_what_happens_in_one_moment_is_in_no_order() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=30, released=30)
    story.attempt("c2", 6, invoked=2, granted=30, released=40)
    assert broken(story) == []


def test_a_pause_before_it_was_invoked_is_no_excuse() -> None:
    for invoked, expected in ((20, []), (22, ["Overtaken"])):
        story = Story(truth=False)
        story.attempt("c1", 5, invoked=invoked, granted=90, released=91)
        story.attempt("c2", 6, invoked=23, granted=60, released=70)
        story.fault(Reach.PAUSED, 19, 21, "c1")
        assert broken(story) == expected


def waiting(gone: int | None, *, asked: int = 40) -> Story:
    """The first one waits and gives up; the second one is granted at 30; a third one comes."""
    story = Story()
    story.attempt("c1", 5, invoked=1, failed=80, gone=gone)
    story.attempt("c2", 6, invoked=2, granted=30, released=50, gone=9)
    story.attempt("c3", 8, invoked=asked, granted=90, released=95, gone=20)
    return story


def test_a_grant_after_an_earlier_one_has_withdrawn_is_right() -> None:
    assert broken(waiting(gone=7)) == []


def test_a_grant_while_an_earlier_one_waits_is_found_by_the_ground_truth() -> None:
    assert broken(waiting(gone=10)) == ["NeverFirst", "Overtaken"]
    for found in fifo(waiting(gone=10).history(), BOUNDS):
        told = str(found)
        assert "token 6 of c2 was granted" in told
        assert "there was token 5" in told
        assert told.count("ContenderAppeared") == told.count("ContenderDisappeared") == 2


def test_that_an_earlier_one_was_there_is_proven_by_who_came_after_the_grant() -> None:
    """It was there when the third contender was created, which was asked for after the grant."""
    for asked, expected in ((40, ["Overtaken"]), (29, [])):
        story = Story()
        story.attempt("c1", 5, invoked=1, failed=80, gone=10)
        story.attempt("c2", 6, invoked=2, granted=30, released=50, gone=11)
        story.attempt("c3", 8, invoked=asked, granted=90, released=95, gone=20)
        assert broken(story) == expected


def test_one_that_never_leaves_is_in_everybodys_way() -> None:
    assert broken(waiting(gone=None)) == [
        "Leaked",
        "NeverFirst",
        "NeverFirst",
        "Overtaken",
        "Overtaken",
    ]


def test_a_grant_of_who_was_removed_while_it_waited_is_found() -> None:
    """It did not look again after its wait. No clock and no overlap shows that, only the order."""
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=20, gone=8)
    story.attempt("c2", 6, invoked=2, granted=21, lost=22, gone=7)
    assert broken(story) == ["NeverFirst"]
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=20, gone=7)
    story.attempt("c2", 6, invoked=2, granted=21, lost=22, gone=8)
    assert broken(story) == []


def test_two_that_go_with_one_session_were_not_first_one_after_the_other() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=20, gone=7)
    story.attempt("c2", 6, invoked=2, granted=21, lost=22, gone=7)
    assert broken(story) == ["NeverFirst"]


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
