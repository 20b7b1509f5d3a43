"""What is the server's own defect, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from coordlock_faults.events import (
    ContenderAppeared,
    ContenderDisappeared,
    Event,
    FaultBegan,
    Reach,
    RunBegan,
)
from coordlock_faults.fifo import NeverFirst, Overtaken
from coordlock_faults.history import History
from coordlock_faults.verdict import judge
from coordlock_faults.violation import Violation

from testbed.soak.server_defects import is_the_servers
from tests.faults.checkers.story import BOUNDS, Story


def story(resumed: int = 40) -> Story:
    """A holder whose contender is removed at 50 ms, 40 ms before its deadline."""
    story = Story()
    story.attempt(
        "c1", 5, invoked=1, granted=10, deadline=90, lost=51, deadline_then=90, gone=7, seen=50
    )
    story.fault(Reach.SERVERS, 20, resumed, "n1")
    return story


def history(story: Story, backend: str = "etcd", kind: str = "pause-leader") -> History:
    def told(event: Event) -> Event:
        match event:
            case RunBegan():
                return replace(event, backend=backend)
            case FaultBegan():
                return replace(event, kind=kind)
        return event

    return History([told(event) for event in story.history().events])


def only_violation(history: History) -> Violation:
    [violation] = judge(history, BOUNDS).all()
    return violation


def test_a_resumed_leader_of_etcd_revokes_leases() -> None:
    found = history(story())
    assert is_the_servers(found, only_violation(found))


def test_another_service_is_not_excused() -> None:
    found = history(story(), "zookeeper")
    assert not is_the_servers(found, only_violation(found))


def test_another_fault_is_no_excuse() -> None:
    found = history(story(), kind="kill-leader")
    assert not is_the_servers(found, only_violation(found))


def test_a_removal_long_after_the_leader_went_on_is_not_excused() -> None:
    late = Story()
    late.attempt(
        "c1", 5, invoked=1, granted=10, deadline=890, lost=889, deadline_then=895, gone=7, seen=888
    )
    late.fault(Reach.SERVERS, 2, 3, "n1")
    found = history(late)
    assert is_the_servers(found, only_violation(found))  # within a second
    shifted = History([replace(e, at=e.at * 3) for e in found.events])
    violations = judge(shifted, BOUNDS).all()
    assert violations
    assert not any(is_the_servers(shifted, one) for one in violations)


def test_what_two_did_whose_leases_were_kept_is_not_excused() -> None:
    both = story()
    both.attempt("c2", 8, invoked=100, granted=110, released=150, gone=10, seen=151)
    both.attempt("c3", 9, invoked=100, granted=120, released=160, gone=11, seen=161)
    found = history(both)
    together = judge(found, BOUNDS).violations["exclusion"]
    assert together
    assert not any(is_the_servers(found, one) for one in together)


#: The first transaction of a leader's epoch.
OLD, NEW, NEWER = 1 << 32, 3 << 32, 4 << 32


def numbered(story: Story, sequences: dict[int, int]) -> History:
    """The history in which contenders have the given sequences, by token; seen early on."""
    events = story.history().events
    keys = {
        one.key: f"/lock/{one.token}__lock__{sequences[one.token]:010}"
        for one in events
        if isinstance(one, ContenderAppeared)
    }
    found: list[Event] = []
    for event in events:
        if isinstance(event, ContenderAppeared):
            event = replace(event, at=1, key=keys[event.key])
        elif isinstance(event, ContenderDisappeared):
            event = replace(event, key=keys[event.key])
        found.append(event)
    return History(found)


def overtaking(
    phantom: int,
    sequences: dict[int, int],
    granted: int = NEW + 8,
    later: int = NEW + 10,
    gone: int = NEW + 20,
) -> History:
    """One that is granted at 10 ms, while there is another before it, and a later one comes."""
    story = Story()
    story.attempt(
        "c1", granted, invoked=1, granted=10, released=20, gone=NEW + 9, deadline=900, seen=21
    )
    story.contender(phantom, gone, seen=300)
    story.contender(later, later + 1, seen=310)
    return numbered(story, sequences)


@pytest.mark.parametrize(
    ("phantom", "sequences", "excused"),
    [
        (OLD + 5, {OLD + 5: 7, NEW + 8: 7, NEW + 10: 8}, True),  # given out again by another leader
        (OLD + 5, {OLD + 5: 7, NEW + 8: 6, NEW + 10: 7}, True),  # an earlier one was, too
        (OLD + 5, {OLD + 5: 0, NEW + 8: 0, NEW + 10: 1}, True),  # the queue was lost, too
        (OLD + 5, {OLD + 5: 7, NEW + 8: 8, NEW + 10: 9}, False),  # none was
        (NEW + 5, {NEW + 5: 7, NEW + 8: 7, NEW + 10: 8}, False),  # by the same leader
        (OLD + 5, {OLD + 5: 7, NEW + 8: 8, NEW + 30: 0}, False),  # the queue may be a new one then
    ],
)
def test_who_overtakes_contenders_whose_sequences_a_later_leader_gave_out_again_is_excused(
    phantom: int, sequences: dict[int, int], excused: bool
) -> None:
    found = overtaking(phantom, sequences, later=max(sequences))
    violations = [
        one for one in judge(found, BOUNDS).all() if isinstance(one, Overtaken | NeverFirst)
    ]
    assert violations
    assert all(is_the_servers(found, one) == excused for one in violations)
