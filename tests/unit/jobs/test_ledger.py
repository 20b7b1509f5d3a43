"""What follows from a ledger: which slots start, and what trimming forgets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordlock.jobs.ledger import Ledger, Policy, State
from coordlock.jobs.slots import Slot

ONCE, LEAST = Policy.AT_MOST_ONCE, Policy.AT_LEAST_ONCE
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
policies = st.sampled_from(Policy)


def started(ledger: Ledger, slot: Slot, policy: Policy = ONCE, token: int = 1) -> Ledger:
    return ledger.started(slot, policy, "host:1", token, NOON.timestamp(), 3)


def ended(ledger: Ledger, slot: Slot, state: State = State.DONE) -> Ledger:
    return ledger.ended(ledger.records[slot].ended(state, NOON.timestamp(), None), 3)


def done(ledger: Ledger, *slots: Slot, policy: Policy = ONCE) -> Ledger:
    for slot in slots:
        ledger = ended(started(ledger, slot, policy), slot)
    return ledger


def test_a_slot_that_nobody_has_started_starts_whatever_later_slots_did() -> None:
    assert Ledger().refusal(1, ONCE) is None
    assert done(Ledger(), 5, 7).refusal(6, ONCE) is None
    assert done(Ledger(), 5, 7).refusal(1, ONCE) is None


@given(policies, policies, st.sampled_from([State.STARTED, State.FAILED]))
def test_an_unfinished_slot_starts_again_only_where_both_policies_allow_it(
    recorded: Policy, asked: Policy, state: State
) -> None:
    ledger = started(Ledger(), 5, recorded)
    if state is State.FAILED:
        ledger = ended(ledger, 5, State.FAILED)
    may = recorded is asked is LEAST
    assert ledger.refusal(5, asked) == (None if may else state.value)
    assert ledger.unfinished(asked) == ([5] if may else [])


@given(policies, policies)
def test_a_slot_that_is_done_never_starts_again(recorded: Policy, asked: Policy) -> None:
    assert done(Ledger(), 5, policy=recorded).refusal(5, asked) == "done"


def test_starts_are_counted() -> None:
    ledger = started(started(Ledger(), 5, LEAST, 1), 5, LEAST, 2)
    assert (ledger.records[5].attempts, ledger.records[5].token) == (2, 2)


def test_trimming_raises_the_floor_and_what_is_below_it_is_passed() -> None:
    ledger = done(Ledger(), 1, 2, 3, 4, 5)
    assert (ledger.floor, list(ledger.records)) == (2, [3, 4, 5])
    assert ledger.refusal(2, ONCE) == ledger.refusal(-9, LEAST) == "passed"


def test_trimming_stops_at_an_unfinished_slot() -> None:
    ledger = done(started(done(Ledger(), 1), 2, LEAST), 3, 4, 5, 6)
    assert (ledger.floor, list(ledger.records)) == (1, [2, 3, 4, 5, 6])
    assert ledger.refusal(2, LEAST) is None
    again = done(ledger, 2, policy=LEAST)
    assert list(again.records) == [2, 3, 4, 5, 6], "its holder may have to look for it"
    again = done(again, 7)
    assert (again.floor, list(again.records)) == (4, [5, 6, 7])


def test_trimming_drops_a_start_at_most_once_that_came_to_no_end() -> None:
    ledger = done(started(Ledger(), 1), 2, 3, 4)
    assert (ledger.floor, ledger.refusal(1, ONCE)) == (1, "passed")


def test_trimming_stops_at_the_present() -> None:
    hours = [NOON + timedelta(hours=number) for number in range(6)]
    ledger = done(Ledger(), *hours[1:])
    assert ledger.floor is None
    assert len(ledger.records) == 5
    assert ledger.refusal(hours[0], ONCE) is None
    ledger = done(ledger, hours[0])
    assert done(ledger, hours[0] - timedelta(hours=1)).floor is None
    assert done(ledger, hours[0] + timedelta(hours=7)).floor == hours[0]


def test_who_records_what_is_skipped_forgets_nobody_who_is_at_work() -> None:
    ledger = started(Ledger(), 1)
    after = ledger.skipped([2, 3, 4, 5], ONCE, NOON.timestamp(), 3)
    assert 1 in after.records
    assert after.floor is None
    assert after.refusal(2, LEAST) == after.refusal(5, ONCE) == "skipped"
    assert after.refusal(6, ONCE) is None


def test_a_slot_is_tried_again_below_the_floor_and_trimmed_when_it_is_done() -> None:
    ledger = done(Ledger(), 1, 2, 3).to_retry(1)
    ledger = done(ledger, 4, 5)
    assert ledger.refusal(1, ONCE) is None
    ledger = done(ledger, 1)
    ledger = done(ledger, 6)
    assert (ledger.floor, ledger.refusal(1, ONCE)) == (3, "passed")


def test_what_is_skipped_is_one_record_and_leaves_the_history_alone() -> None:
    ledger = done(Ledger(), 1, 2, 9)
    for slots in ([3], [4, 5, 6], [7, 8, 10, 11]):
        ledger = ledger.skipped(slots, ONCE, NOON.timestamp(), 100)
    assert list(ledger.records) == [1, 2, 8, 9, 11]
    rows = [(one.first, one.count) for one in ledger.records.values() if one.first]
    assert rows == [(3, 6), (10, 2)]
    again = done(ledger.to_retry(5), 5)
    assert [again.refusal(slot, ONCE) for slot in (4, 5, 6)] == ["skipped", "done", "skipped"]
    for last in (8, 11):  # of its row, which stays without it
        again = ledger.to_retry(last)
        assert [again.refusal(slot, ONCE) for slot in (3, 7, 10)] == ["skipped"] * 3
        assert again.refusal(last, ONCE) is None
        assert Ledger.parse(again.encode()) == again
    assert Ledger.parse(ledger.encode()) == ledger


def test_the_floor_never_passes_a_slot_that_is_to_be_made_up_for() -> None:
    def after(slot: datetime) -> Iterator[datetime]:
        return (slot + number * timedelta(minutes=1) for number in itertools.count(1))

    slots = [NOON - timedelta(minutes=10 - number) for number in range(8)]
    ledger = Ledger()
    for slot in (slots[0], *slots[2:]):
        ledger = ledger.started(slot, ONCE, "h", 1, NOON.timestamp(), 3, after)
        record = ledger.records[slot].ended(State.DONE, NOON.timestamp())
        ledger = ledger.ended(record, 3, after)
    assert (ledger.floor, next(ledger.missing(after))) == (slots[0], slots[1])
    assert list(ledger.records) == slots[2:]
    ledger = ledger.started(slots[1], ONCE, "h", 1, NOON.timestamp(), 3, after)
    ledger = ledger.ended(ledger.records[slots[1]].ended(State.DONE, NOON.timestamp()), 3, after)
    ledger = ledger.started(NOON, ONCE, "h", 1, NOON.timestamp(), 3, after)
    assert (ledger.floor, len(ledger.records)) == (slots[5], 3)
    assert list(itertools.islice(ledger.missing(after), 2)) == [
        NOON - timedelta(minutes=m) for m in (2, 1)
    ]


@pytest.mark.parametrize("slot", [5, NOON])
def test_a_ledger_is_what_was_stored(slot: Slot) -> None:
    ledger = ended(started(Ledger(), slot), slot, State.FAILED)
    assert Ledger.parse(ledger.encode()) == ledger
    assert Ledger.parse({}) == Ledger()


def test_what_a_newer_release_has_added_to_a_slot_is_kept() -> None:
    fields = started(Ledger(), 5, LEAST).encode()
    fields["slots"][0]["colour"] = "red"
    again = started(Ledger.parse(fields), 5, LEAST, 2)
    assert again.encode()["slots"][0]["colour"] == "red"


def test_a_ledger_with_slots_of_both_kinds_is_refused() -> None:
    fields = started(Ledger(), 5).encode() | {"floor": "2026-11-22T12:00:00Z"}
    with pytest.raises(ValueError, match="both kinds"):
        Ledger.parse(fields)


class Keeping(RuleBasedStateMachine):
    """A job under both policies, some of whose hosts have fast clocks.

    At every moment: no at-most-once slot has started twice, no unfinished at-least-once slot is
    refused, nothing that is done starts again, and no slot of the present or the future is passed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.now = 0
        self.starts: dict[Slot, list[Policy]] = {}
        self.unfinished: set[Slot] = set()
        self.done: set[Slot] = set()
        self.token = 0

    def at(self, minutes: int) -> datetime:
        return NOON + timedelta(minutes=minutes)

    @property
    def present(self) -> float:
        return self.at(self.now).timestamp()

    @rule(minutes=st.integers(1, 10))
    def wait(self, minutes: int) -> None:
        self.now += minutes

    @rule(
        back=st.integers(-15, 15),
        policy=policies,
        end=st.sampled_from([State.DONE, State.DONE, State.FAILED, None]),
        history=st.integers(1, 3),
    )
    def run(self, back: int, policy: Policy, end: State | None, history: int) -> None:
        slot = self.at(self.now - back)
        if self.ledger.refusal(slot, policy) is not None:
            return
        self.token += 1
        if slot not in self.starts:
            assert slot not in self.done
        self.starts.setdefault(slot, []).append(policy)
        self.ledger = self.ledger.started(slot, policy, "h", self.token, self.present, history)
        record = self.ledger.records[slot]
        assert record.attempts == len(self.starts[slot])
        if policy is LEAST:
            self.unfinished.add(slot)
        if end is not None:
            self.ledger = self.ledger.ended(record.ended(end, self.present), history)
        if end is State.DONE:
            assert slot not in self.done
            self.done.add(slot)
            self.unfinished.discard(slot)

    @rule(back=st.integers(0, 10), history=st.integers(1, 3))
    def skip(self, back: int, history: int) -> None:
        slots = [self.at(self.now - back - more) for more in range(3)]
        self.ledger = self.ledger.skipped(
            [one for one in slots if self.ledger.refusal(one, ONCE) is None],
            *(ONCE, self.present, history),
        )

    @precondition(lambda self: self.ledger.records)
    @rule()
    def load(self) -> None:
        assert Ledger.parse(self.ledger.encode()) == self.ledger

    @invariant()
    def holds(self) -> None:
        for starts in self.starts.values():
            assert len(starts) == 1 or set(starts) == {LEAST}
        for slot in self.unfinished:
            assert self.ledger.refusal(slot, LEAST) is None, "an unfinished slot is forgotten"
        for slot in self.done:
            assert self.ledger.refusal(slot, LEAST) is not None
        floor = self.ledger.floor
        assert floor is None or floor <= self.at(self.now)  # type: ignore[operator]
        for slot in self.starts:
            if slot > self.at(self.now):  # type: ignore[operator]
                assert slot in self.ledger.records


TestKeeping = Keeping.TestCase
