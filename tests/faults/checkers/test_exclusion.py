from __future__ import annotations

import pytest
from coordlock_faults.events import Reach
from coordlock_faults.exclusion import HeldTogether, exclusion

from coordlock.model.claim import Permit
from tests.faults.checkers.story import BOUNDS, MS, Story, broken


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


def permits(of: int, ends: list[int]) -> Story:
    story = Story(truth=False)
    for number, end in enumerate(ends):
        at = 10 + number
        story.attempt(
            f"c{number}", 5 + number, claim=Permit(of), invoked=1, granted=at, released=end
        )
    return story


def test_one_holder_more_than_there_are_permits_is_found() -> None:
    story = permits(2, [20, 15, 25])
    (found,) = exclusion(story.history(), BOUNDS)
    assert isinstance(found, HeldTogether)
    assert found.length == 3 * MS  # from the third grant to the first release
    assert broken(story) == ["HeldTogether"]


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
