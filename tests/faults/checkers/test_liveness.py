from __future__ import annotations

import pytest
from coordlock_faults.events import (
    Act,
    Called,
    Reach,
    Returned,
)
from coordlock_faults.liveness import liveness

from tests.faults.checkers.story import BOUNDS, MS, Story, broken


def waiter(answered: int) -> Story:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=50, granted=answered, released=answered + 5)
    return story


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
