from __future__ import annotations

import pytest
from coordlock_faults.events import (
    AcquireInvoked,
    Act,
    Called,
    Reach,
    ReleaseSent,
    Returned,
)
from coordlock_faults.liveness import liveness

from coordlock.model.claim import Mode
from tests.faults.checkers.story import BOUNDS, MS, Story, broken


def waiter(answered: int) -> Story:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=50, granted=answered, released=answered + 5)
    return story


def test_who_is_answered_in_time_is_right() -> None:
    assert broken(waiter(250)) == []


def test_who_waits_for_longer_is_found() -> None:
    assert broken(waiter(251)) == ["Unanswered"]


def test_an_error_is_an_answer() -> None:
    for at, expected in ((250, []), (251, ["Unanswered"])):
        story = waiter(60)
        story.attempt("c2", invoked=50, failed=at)
        assert broken(story) == expected


@pytest.mark.parametrize("reach", [Reach.SERVERS, Reach.NETWORK, Reach.PAUSED, Reach.OPERATOR])
def test_the_time_is_counted_from_the_end_of_the_last_fault(reach: Reach) -> None:
    for answered, expected in ((600, []), (601, ["Unanswered"])):
        story = waiter(answered)
        story.fault(reach, 100, 400, "x")
        story.fault(Reach.SERVERS, 90, 300, "x")
        assert broken(story) == expected
        if expected:
            (found,) = liveness(story.history(), BOUNDS)
            assert found.events[0].at == 400 * MS  # tells when it was healed


def test_every_time_without_faults_counts_that_is_long_enough() -> None:
    story = waiter(700)
    story.fault(Reach.SERVERS, 60, 100, "x")
    story.fault(Reach.SERVERS, 299, 550, "x")
    assert broken(story) == []
    story = waiter(700)
    story.fault(Reach.SERVERS, 60, 100, "x")
    story.fault(Reach.SERVERS, 301, 550, "x")
    assert broken(story) == ["Unanswered"]


def test_who_is_not_answered_by_the_end_is_found() -> None:
    """Though it was invoked so late that the time was not over."""
    story = waiter(60)
    story.add(AcquireInvoked(880 * MS, "c2", "late", "a", Mode.EX))
    assert broken(story) == ["Unanswered"]


def test_a_process_that_was_killed_is_owed_nothing() -> None:
    story = waiter(60)
    story.add(AcquireInvoked(70 * MS, "c2", "dead", "a", Mode.EX))
    assert broken(story) == ["Unanswered"]
    story.fault(Reach.KILLED, 200, 201, "c2")
    assert broken(story) == []


def test_a_process_that_waited_too_long_before_it_was_killed_was_owed_an_answer() -> None:
    story = waiter(60)
    story.add(AcquireInvoked(70 * MS, "c2", "dead", "a", Mode.EX))
    story.fault(Reach.KILLED, 300, 301, "c2")
    assert broken(story) == ["Unanswered"]


def test_a_release_that_hangs_is_found() -> None:
    story = Story(truth=False)
    one = story.attempt("c1", 5, invoked=50, granted=60)
    story.add(ReleaseSent(70 * MS, "c1", one))
    assert broken(story) == ["Unanswered"]


def test_a_call_of_a_recipe_that_waits_for_too_long_is_found() -> None:
    story = Story(truth=False)
    story.fault(Reach.SERVERS, 10, 50, "etcd1")
    story.add(Called(20 * MS, "c1", "call1", Act.PUT, "mails", "", (1, 0)))
    story.add(Returned(240 * MS, "c1", "call1", (1,)))
    story.add(Called(20 * MS, "c1", "call2", Act.OBSERVE, "leader"))
    story.add(Returned(800 * MS, "c1", "call2"))
    assert liveness(story.history(), BOUNDS) == []
    story.add(Called(20 * MS, "c2", "call3", Act.PUT, "mails", "", (2, 0)))
    story.add(Returned(260 * MS, "c2", "call3", (2,)))
    [found] = liveness(story.history(), BOUNDS)
    assert "call3 (put) waited for mails for more than 0.2 s without faults" in str(found)
