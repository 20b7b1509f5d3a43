from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from coordlock_faults.events import Reach
from coordlock_faults.exclusion import HeldTogether, exclusion
from coordlock_faults.overlap import overlaps

from coordlock.model.claim import Claim, Mode, Permit
from tests.faults.checkers.story import BOUNDS, MS, Story, broken


def taking_turns() -> Story:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=20, gone=7)
    story.attempt("c2", 6, invoked=2, granted=21, released=30, gone=8)
    return story


def expired(granted: int) -> Story:
    """The first holder is cut off and expires; its deadline is at 40, the service's at 45."""
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, deadline=35, lost=41, deadline_then=40, gone=7)
    story.attempt("c2", 6, invoked=2, granted=granted, released=60, gone=8)
    return story


def test_holders_that_take_turns_are_right() -> None:
    assert broken(taking_turns()) == []


def test_two_holders_at_a_time_are_found() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=22)
    story.attempt("c2", 6, invoked=2, granted=21, released=30)
    (found,) = exclusion(story.history(), BOUNDS)
    assert isinstance(found, HeldTogether)
    assert found.length == 1 * MS
    assert str(found).splitlines() == [
        "HeldTogether: a was held together by c1 (token 5), c2 (token 6), for 1.000 ms",
        "        0.010000 s  c1         Granted attempt=attempt1 token=5 deadline=None",
        "        0.021000 s  c2         Granted attempt=attempt2 token=6 deadline=None",
        "        0.022000 s  c1         ReleaseSent attempt=attempt1 patience=None",
        "        0.030000 s  c2         ReleaseSent attempt=attempt2 patience=None",
    ]
    assert broken(story) == ["HeldTogether"]


def test_other_locks_are_other_locks() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=22)
    story.lock = "b"
    story.attempt("c2", 6, invoked=2, granted=21, released=30)
    assert broken(story) == []


@pytest.mark.parametrize(("one", "other"), list(combinations(Mode, 2)))
def test_modes_are_held_together_as_they_may(one: Mode, other: Mode) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, claim=one, invoked=1, granted=10, released=22)
    story.attempt("c2", 6, claim=other, invoked=2, granted=21, released=30)
    expected = ["HeldTogether"] if one.conflicts(other) else []
    assert broken(story) == expected


def permits(of: int, ends: list[int]) -> Story:
    story = Story(truth=False)
    for number, end in enumerate(ends):
        at = 10 + number
        story.attempt(
            f"c{number}", 5 + number, claim=Permit(of), invoked=1, granted=at, released=end
        )
    return story


def test_as_many_hold_a_semaphore_as_there_are_permits() -> None:
    assert broken(permits(2, [20, 12, 25])) == []


def test_one_holder_more_than_there_are_permits_is_found() -> None:
    story = permits(2, [20, 15, 25])
    (found,) = exclusion(story.history(), BOUNDS)
    assert isinstance(found, HeldTogether)
    assert found.length == 3 * MS  # from the third grant to the first release
    assert broken(story) == ["HeldTogether"]


@pytest.mark.parametrize("claim", [Mode.EX, Permit(3)])
def test_a_semaphore_excludes_other_kinds_of_locks(claim: Claim) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, claim=Permit(2), invoked=1, granted=10, released=22)
    story.attempt("c2", 6, claim=claim, invoked=2, granted=21, released=30)
    assert "HeldTogether" in broken(story)


def test_a_holder_that_is_told_in_time_is_not_one_any_more() -> None:
    story = expired(granted=45)
    story.fault(Reach.NETWORK, 15, 70, "c1")
    assert broken(story) == []


def test_a_holder_that_was_killed_is_not_one_any_more() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, gone=7)
    story.attempt("c2", 6, invoked=2, granted=45, released=60, gone=8)
    assert broken(story) == ["HeldTogether", "Missing"]
    story.fault(Reach.KILLED, 30, 31, "c1")
    assert broken(story) == []


@pytest.mark.parametrize("reach", [Reach.SERVERS, Reach.NETWORK])
def test_faults_of_servers_and_network_excuse_no_overlap(reach: Reach) -> None:
    story = expired(granted=39)
    story.fault(reach, 15, 70, "c1")
    assert broken(story) == ["HeldTogether"]


def test_an_overlap_with_a_holder_that_was_paused_is_counted() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, lost=81, deadline_then=40, gone=7)
    story.attempt("c2", 6, invoked=2, granted=45, released=60, gone=8)
    assert broken(story) == ["HeldTogether", "LateSignal"]
    story.fault(Reach.PAUSED, 15, 80, "c1")
    assert broken(story) == []
    (found,) = overlaps(story.history(), BOUNDS)
    assert (found.start, found.end) == (45 * MS, 60 * MS)
    assert [one.name for one in found.holders] == ["attempt1", "attempt2"]
    assert [one.began.targets for one in found.excuses] == [("c1",)]


@pytest.mark.parametrize(
    ("began", "healed", "targets"),
    [
        (15, 80, ("c2",)),  # another one
        (46, 80, ("c1",)),  # too late to be the reason
        (15, 34, ("c1",)),  # over for longer than a signal takes
    ],
)
def test_only_the_pause_of_the_older_holder_at_that_time_is_an_excuse(
    began: int, healed: int, targets: tuple[str, ...]
) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=50)
    story.attempt("c2", 6, invoked=2, granted=45, released=60)
    story.fault(Reach.PAUSED, began, healed, *targets)
    assert broken(story) == ["HeldTogether"]


def test_a_pause_that_was_just_over_is_an_excuse() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=50)
    story.attempt("c2", 6, invoked=2, granted=45, released=60)
    story.fault(Reach.PAUSED, 15, 36, "c1")
    assert broken(story) == []


@pytest.mark.parametrize(("process", "right"), [("c1", True), ("c2", False)])
def test_the_older_holder_is_the_one_with_the_smaller_token(process: str, right: bool) -> None:
    """Whichever says first that it was granted."""
    story = Story(truth=False)
    story.attempt("c2", 6, invoked=2, granted=45, released=60)
    story.attempt("c1", 5, invoked=1, granted=50, lost=51, deadline_then=40)
    story.fault(Reach.PAUSED, 30, 49, process)
    assert ("HeldTogether" not in broken(story)) is right


def test_that_the_service_removed_the_holder_too_early_is_told() -> None:
    for deadline, early in ((30, True), (23, False), (22, False)):
        story = Story()
        story.attempt("c1", 5, invoked=1, granted=10, deadline=deadline, lost=31, gone=7, seen=23)
        story.attempt("c2", 6, invoked=2, granted=25, released=60, gone=8)
        found = str(exclusion(story.history(), BOUNDS)[0])
        assert ("the service removed token 5 before its deadline" in found) is early
        assert "ContenderDisappeared key=/a/key1" in found


def test_one_holder_too_many_is_excused_by_one_that_is_paused_not_two_by_one() -> None:
    for claims, expected in ((3, []), (4, ["HeldTogether"])):
        story = permits(2, [60] * claims)
        story.fault(Reach.PAUSED, 10, 60, "c0")
        assert broken(story) == expected


@pytest.mark.parametrize("target", ["c1", "etcd2"])
def test_wrong_wall_clocks_excuse_nothing(target: str) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=50)
    story.attempt("c2", 6, invoked=2, granted=45, released=60)
    story.fault(Reach.CLOCKS, 15, 50, target)
    assert broken(story) == ["HeldTogether"]


def test_a_pause_excuses_an_overlap_only_until_its_process_has_had_time_for_the_signal() -> None:
    """Who goes on after it as though nothing had happened hides behind it."""
    for released, expected in ((90, []), (91, ["HeldTogether"])):
        story = Story(truth=False)
        story.attempt("c1", 5, invoked=1, granted=10, released=released)
        story.attempt("c2", 6, invoked=2, granted=45, released=100)
        story.fault(Reach.PAUSED, 15, 80, "c1")
        assert broken(story) == expected


def test_a_pause_excuses_no_overlap_before_the_deadline_of_who_was_paused() -> None:
    for granted, expected in ((39, ["HeldTogether"]), (40, [])):
        story = Story(truth=False)
        story.attempt("c1", 5, invoked=1, granted=10, deadline=30, lost=45, deadline_then=40)
        story.attempt("c2", 6, invoked=2, granted=granted, released=60)
        story.fault(Reach.PAUSED, 15, 44, "c1")
        assert broken(story) == expected


def evicted(told: int, *, others: int = 3) -> Story:
    """The first holder's contender was removed after the ``others`` came; it is told later."""
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, lost=told, gone=8, seen=45)
    story.attempt("c2", 6, invoked=2, granted=50, released=300, gone=9)
    story.attempt("c3", 7, invoked=others, enqueued=30, failed=100, gone=10)
    return story


def test_an_operator_excuses_an_overlap_only_until_the_holder_must_have_been_told() -> None:
    for told, expected in ((231, []), (232, ["HeldTogether"])):
        story = evicted(told)
        story.fault(Reach.OPERATOR, 20, 21, "/a/key1")
        assert broken(story) == expected


def test_an_operator_is_no_excuse_for_what_happened_without_him() -> None:
    """He did something to the lock, and the contender was removed later, by nobody knows whom."""
    for others, expected in ((21, []), (22, ["HeldTogether"])):
        story = evicted(60, others=others)
        story.fault(Reach.OPERATOR, 20, 21, "a")
        assert broken(story) == expected


def test_a_contender_that_is_still_there_was_removed_by_nobody() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10)
    story.attempt("c2", 6, invoked=2, granted=50, released=60, gone=8)
    story.fault(Reach.OPERATOR, 20, 21, "a")
    assert broken(story) == ["HeldTogether", "NeverFirst", "Overtaken"]


def test_who_was_killed_while_it_was_granted_is_told_with_a_length_of_nothing() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=50)
    story.attempt("c2", 6, invoked=2, granted=21)
    story.fault(Reach.KILLED, 20, 22, "c2")
    (found,) = exclusion(story.history(), BOUNDS)
    assert isinstance(found, HeldTogether)
    assert found.length == 0


@pytest.mark.parametrize("target", ["a", "/a/key1", "s/a/key1", "/a/key2", "b"])
def test_an_operator_who_removes_the_holder_is_an_excuse_and_no_other(target: str) -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, deadline=40, lost=23, gone=7, seen=21)
    story.attempt("c2", 6, invoked=2, granted=22, released=60, gone=8)
    story.fault(Reach.OPERATOR, 20, 21, target)
    named = target in {"a", "/a/key1", "s/a/key1"}
    assert broken(story) == ([] if named else ["EarlyRemoval", "HeldTogether"])


def test_a_hold_without_an_end_lasts_to_the_end() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10)
    story.attempt("c2", 6, invoked=790, granted=800, released=810)
    assert broken(story) == ["HeldTogether"]


def test_no_more_are_listed_than_asked_for() -> None:
    story = permits(1, [60] * 30)
    assert len(exclusion(story.history(), BOUNDS)) == 29
    assert len(exclusion(story.history(), replace(BOUNDS, findings=4))) == 4
