from __future__ import annotations

from coordlock_faults.events import FOREVER

from tests.faults.checkers.story import MS, QUIET, Story


def test_what_came_after_a_creation_came_after_its_invocation() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=10, granted=20, released=21, gone=7)
    story.attempt("c2", 9, invoked=30, granted=40, released=41, gone=12)
    story.attempt("c3", 10, invoked=5, granted=50, released=51, gone=13)
    times = story.history().times
    known = {4: 0, 5: 10, 8: 10, 9: 30, 10: 30, 99: 30}
    assert {revision: times.not_before(revision) // MS for revision in known} == known


def test_what_came_before_something_that_somebody_saw_came_before_that() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=10, granted=20, released=21, gone=7, seen=50)
    story.attempt("c2", 9, invoked=30, enqueued=33, granted=60, released=61, gone=12)
    times = story.history().times
    known = {4: 20, 5: 20, 6: 33, 7: 33, 9: 33, 10: QUIET + 1, 13: QUIET + 1}
    assert {revision: times.not_after(revision) // MS for revision in known} == known
    assert times.not_after(14) == FOREVER


def test_an_observer_may_see_it_first() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=10, granted=70, released=80, gone=7, seen=50)
    times = story.history().times
    assert times.not_after(5) == times.not_after(7) == 50 * MS


def test_a_release_that_has_returned_proves_nothing() -> None:
    """It waits for the service only so long."""
    story = Story()
    story.attempt("c1", 5, invoked=10, granted=20, released=21, gone=7)
    assert story.history().times.not_after(7) == (QUIET + 1) * MS
