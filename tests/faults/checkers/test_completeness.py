from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from coordlock_faults.completeness import completeness
from coordlock_faults.events import (
    AcquireFailed,
    AcquireInvoked,
    Act,
    Called,
    ContenderAppeared,
    ContenderDisappeared,
    Counted,
    Enqueued,
    Event,
    FaultBegan,
    FaultHealed,
    FinalSet,
    FinalValue,
    Granted,
    Kind,
    LossSignalled,
    OperationAccepted,
    OperationRefused,
    Present,
    Quiesced,
    Raised,
    Reach,
    ReleaseAcknowledged,
    ReleaseFailed,
    ReleaseSent,
    Returned,
    RunBegan,
    RunEnded,
    Shown,
    Surveyed,
    Withdrawn,
)
from coordlock_faults.history import History

from coordlock.model.claim import Mode
from tests.faults.checkers.story import BOUNDS, END, MS, QUIET, Story, broken


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
    story.count("leases", 1, 1)
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
    Counted,
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


@pytest.mark.parametrize(
    "kind",
    [
        AcquireInvoked,
        AcquireFailed,
        Called,
        Enqueued,
        FaultBegan,
        FaultHealed,
        Granted,
        LossSignalled,
        Present,
        Quiesced,
        Raised,
        ReleaseAcknowledged,
        ReleaseSent,
        Returned,
        RunBegan,
        RunEnded,
        Withdrawn,
    ],
)
def test_an_event_that_comes_twice_does_not_fit(kind: type[Event]) -> None:
    history = full().history()
    again = next(event for event in history.events if type(event) is kind)
    assert completeness(History([*history.events, again]), BOUNDS)


@pytest.mark.parametrize(
    "kind",
    [OperationAccepted, OperationRefused, ContenderAppeared, ContenderDisappeared, Surveyed],
)
def test_what_two_may_tell_may_come_twice(kind: type[Event]) -> None:
    history = full().history()
    again = next(event for event in history.events if type(event) is kind)
    assert completeness(History([*history.events, again]), BOUNDS) == []


def at(when: int, kind: Callable[..., Event], process: str, *args: Any) -> Event:
    return kind(when * MS, process, *args)


@pytest.mark.parametrize(
    "event",
    [
        at(30, Granted, "c9", "attempt9", 5, None),  # never invoked
        at(30, Granted, "c3", "attempt3", 9, None),  # granted and failed
        at(30, ReleaseSent, "c3", "attempt3"),  # failed
        at(30, LossSignalled, "c3", "attempt3", "expired", None),
        at(30, ReleaseFailed, "c2", "attempt2", "OSError"),  # not sent
        at(30, Withdrawn, "c9", "attempt1"),  # of another process
        at(30, OperationAccepted, "c1", "operation9", 1),
        at(30, OperationAccepted, "c1", "operation3", 9),  # refused
        at(30, OperationAccepted, "c1", "operation1", 9),  # accepted elsewhere
        at(30, OperationRefused, "c1", "operation1", 9),  # accepted
        at(70, FaultHealed, "nemesis", "fault9"),
        at(920, FaultBegan, "nemesis", "fault9", "kill", Reach.SERVERS, ()),
        at(30, Returned, "c1", "call9"),
        at(30, Returned, "c9", "call1"),  # of another process
        at(32, Shown, "c1", "call1", ()),  # of no observer
        at(30, Present, "runner", "values", ()),
        at(920, Called, "c1", "call9", Act.WRITE, "values"),
        at(920, AcquireInvoked, "c1", "attempt9", "a", Mode.EX),
        at(30, FinalSet, "runner", "ledger", (1,)),
        at(30, FinalValue, "runner", "ledger", 1),
        at(1001, Counted, "runner", "leases", 1, False),
        at(-1, Counted, "runner", "leases", 1, False),
        at(30, ContenderDisappeared, "observer", "/a/key9", 3),
        at(30, ContenderDisappeared, "observer", "/a/key1", 9),  # it has gone at 7
        at(30, ContenderAppeared, "observer", "a", "/a/key1", 6, Mode.EX, "s", 6),  # it is there
    ],
)
def test_an_event_that_contradicts_the_others_does_not_fit(event: Event) -> None:
    history = full().history()
    assert completeness(History([*history.events, event]), BOUNDS)


def test_a_key_that_comes_again_is_another_contender() -> None:
    story = full()
    story.add(
        ContenderAppeared(END * MS, "observer", "a", "/a/key1", 11, Mode.EX, "s", 11),
        ContenderDisappeared(END * MS, "observer", "/a/key1", 12),
    )
    story.revision = 12
    assert broken(story) == []


def test_a_history_without_grants_is_incomplete() -> None:
    story = Story()
    story.attempt("c1", invoked=1, failed=10)
    assert broken(story) == ["Incomplete"]


def test_a_fault_that_outlasts_the_run_is_not_healed_in_time() -> None:
    for healed, expected in ((QUIET, []), (QUIET + 1, ["Incomplete"]), (None, ["Incomplete"])):
        story = full()
        story.fault(Reach.NETWORK, 70, healed, "c1")
        assert broken(story) == expected


def test_a_name_that_is_used_again_after_its_process_was_killed_is_found() -> None:
    """Nothing would be asked of it any more."""
    for killed, expected in ((45, []), (4, ["Incomplete"])):
        story = Story(truth=False)
        story.attempt("c1", 5, invoked=10, granted=12, released=20, acked=46)
        story.fault(Reach.KILLED, killed, killed + 1, "c1")
        assert sorted(set(broken(story))) == expected


def test_what_came_of_an_operation_is_told_unless_its_client_was_killed() -> None:
    story = Story(truth=False)
    one = story.attempt("c1", 5, invoked=1, granted=10, released=40)
    story.operation(one, 5, at=11)
    assert broken(story) == ["Incomplete"]
    story.fault(Reach.KILLED, 30, 31, f"of {one}")
    assert broken(story) == []


def test_a_line_that_is_not_whole_is_of_a_process_that_was_killed() -> None:
    for writer, expected in (("c1", 0), ("c2", 1)):
        story = full()
        story.fault(Reach.KILLED, 45, 46, "c1")
        events = story.history().events
        assert len(completeness(History(events, [writer]), BOUNDS)) == expected


def test_an_empty_history_is_incomplete() -> None:
    assert completeness(History([]))
