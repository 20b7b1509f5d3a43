from __future__ import annotations

from dataclasses import replace

from coordlock_faults.events import AcquireFailed, AcquireInvoked, Event
from coordlock_faults.victims import FalseVictim, victims

from coordlock.model.claim import Mode
from tests.faults.checkers.story import BOUNDS, Story


def two_that_hold_and_wait(*, second: str, mode: Mode = Mode.EX) -> Story:
    """c1 holds a and waits for b; c2 holds b and waits for ``second``, and gives up."""
    story = Story(truth=False)
    story.attempt("c1", 1, invoked=1, granted=2, released=80, claim=mode)
    story.lock = "b"
    story.attempt("c2", 2, invoked=3, granted=4, released=60, claim=mode)
    story.attempt("c1", 3, invoked=10, granted=61, released=70, claim=mode)
    story.lock = second
    story.attempt("c2", invoked=20, failed=50, claim=mode)
    story.events = [_told(one) for one in story.events]
    return story


def _told(event: Event) -> Event:
    if isinstance(event, AcquireInvoked):
        return replace(event, actor="thread0")  # each process has one of that name
    return replace(event, error="DeadlockDetected") if isinstance(event, AcquireFailed) else event


def test_who_gives_up_in_a_circle_is_right() -> None:
    assert victims(two_that_hold_and_wait(second="a").history(), BOUNDS) == []


def test_who_gives_up_in_none_is_found() -> None:
    [found] = victims(two_that_hold_and_wait(second="c").history(), BOUNDS)
    assert isinstance(found, FalseVictim)


def test_locks_that_are_shared_make_no_circle() -> None:
    story = two_that_hold_and_wait(second="a", mode=Mode.PR)
    [found] = victims(story.history(), BOUNDS)
    assert isinstance(found, FalseVictim)


def test_another_error_is_none_of_this() -> None:
    story = two_that_hold_and_wait(second="c")
    story.events = [
        replace(one, error="AcquireTimeout") if isinstance(one, AcquireFailed) else one
        for one in story.events
    ]
    assert victims(story.history(), BOUNDS) == []
