from __future__ import annotations

from coordlock_faults.completeness import completeness
from coordlock_faults.events import (
    AcquireFailed,
    Act,
    ContenderAppeared,
    ContenderDisappeared,
    Enqueued,
    Kind,
    LossSignalled,
    Reach,
    ReleaseAcknowledged,
    Shown,
    Withdrawn,
)
from coordlock_faults.history import History

from tests.faults.checkers.story import BOUNDS, MS, Story, broken


def full() -> Story:
    """A run with something of everything."""
    story = Story()
    one = story.attempt("c1", 5, invoked=1, enqueued=2, granted=10, released=20, gone=7)
    other = story.attempt("c2", 6, invoked=2, granted=21, lost=40, deadline_then=40, gone=8)
    third = story.attempt("c3", 9, invoked=3, failed=30, gone=10)
    story.add(Withdrawn(29 * MS, "c3", third))
    story.operation(one, 5, at=11, kind=Kind.ADD, value=1, order=1)
    story.operation(other, 6, at=22, kind=Kind.ADD, value=2, order=2)
    story.operation(one, 5, at=24, kind=Kind.ADD, value=3, refused_by=6)
    story.operation(one, 5, at=24, kind=Kind.ADD, value=4, failed=True)
    story.final_set(1, 2)
    story.fault(Reach.SERVERS, 50, 60, "etcd1")
    story.lock = "values"
    story.call("c1", Act.WRITE, 0, 0, 7, at=30)
    story.call("c2", Act.WRITE, 0, 0, 8, at=40, raised="VersionMismatch")
    story.observe("c3", (0, 1, 7))
    story.present(0, 1, 7)
    return story


def test_a_full_history_is_complete() -> None:
    assert broken(full()) == []


#: What does without: it would only prove less, and something else is found where that matters.
OPTIONAL = {
    AcquireFailed,
    ContenderAppeared,
    ContenderDisappeared,
    Enqueued,
    LossSignalled,
    ReleaseAcknowledged,
    Shown,
    Withdrawn,
}


def test_a_history_that_lacks_an_event_is_incomplete() -> None:
    events = full().history().events
    for number, event in enumerate(events):
        if type(event) in OPTIONAL:
            continue
        history = History([*events[:number], *events[number + 1 :]])
        assert completeness(history, BOUNDS), event
