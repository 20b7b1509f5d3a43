"""What follows from a ledger: which slots start, and what trimming forgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordlock import Every
from coordlock.jobs import ledger as ledger_module
from coordlock.jobs.ledger import Ledger, Policy, Rules, State
from coordlock.jobs.slots import Slot

ONCE, LEAST = Rules(Policy.AT_MOST_ONCE), Rules(Policy.AT_LEAST_ONCE)
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
rules = st.sampled_from([ONCE, LEAST])


@pytest.fixture(autouse=True)
def three_kept() -> Iterator[None]:
    with patch.object(ledger_module, "KEPT", 3):
        yield


def started(ledger: Ledger, slot: Slot, rules: Rules = ONCE, token: int = 1) -> Ledger:
    return ledger.started(slot, "host:1", token, NOON, rules)


def ended(ledger: Ledger, slot: Slot, state: State = State.DONE, rules: Rules = ONCE) -> Ledger:
    return ledger.with_record(ledger.records[slot].ended(state, NOON, None), NOON, rules)


def done(ledger: Ledger, *slots: Slot, rules: Rules = ONCE) -> Ledger:
    for slot in slots:
        ledger = ended(started(ledger, slot, rules), slot, rules=rules)
    return ledger


def to_retry(ledger: Ledger, slot: Slot) -> Ledger:
    again = replace(ledger.records[slot], state=State.RETRY)
    return replace(ledger, records={**ledger.records, slot: again})


def test_a_slot_that_nobody_has_started_starts_whatever_later_slots_did() -> None:
    assert Ledger().refusal(1, ONCE) is None
    assert done(Ledger(), 5, 7).refusal(6, ONCE) is None
    assert done(Ledger(), 5, 7).refusal(1, ONCE) is None


@given(rules, rules, st.sampled_from([State.RUNNING, State.FAILED, State.INTERRUPTED]))
def test_an_unfinished_slot_starts_again_only_where_both_policies_allow_it(
    recorded: Rules, asked: Rules, state: State
) -> None:
    ledger = started(Ledger(), 5, recorded)
    if state is not State.RUNNING:
        ledger = ended(ledger, 5, state)
    may = recorded is asked is LEAST
    assert ledger.refusal(5, asked) == (None if may else state)
    assert ledger.refusal(5, replace(asked, max_attempts=1)) == state


def test_the_delay_before_the_next_attempt_doubles_up_to_an_hour() -> None:
    ledger, delays = Ledger(), []
    for _ in range(12):
        ledger = ended(started(ledger, 5, LEAST), 5, State.FAILED)
        at = LEAST.retry_at(ledger.records[5])
        assert at is not None
        delays.append((at - NOON).total_seconds())
    assert delays == [min(10.0 * 2**number, 3600.0) for number in range(12)]
    assert LEAST.retry_at(started(ledger, 5, LEAST).records[5]) is None
    assert LEAST.retry_at(ended(ledger, 5, State.INTERRUPTED).records[5]) is None


@given(rules, rules)
def test_a_slot_that_is_done_never_starts_again(recorded: Rules, asked: Rules) -> None:
    assert done(Ledger(), 5, rules=recorded).refusal(5, asked) == "done"


def test_trimming_raises_the_floor_and_what_is_below_it_is_passed() -> None:
    ledger = done(Ledger(), 1, 2, 3, 4, 5)
    assert (ledger.floor, list(ledger.records)) == (2, [3, 4, 5])
    assert ledger.refusal(2, ONCE) == ledger.refusal(-9, LEAST) == "passed"


def test_trimming_stops_at_an_unfinished_slot() -> None:
    ledger = done(started(done(Ledger(), 1), 2, LEAST), 3, 4, 5, 6)
    assert (ledger.floor, list(ledger.records)) == (1, [2, 3, 4, 5, 6])
    assert ledger.refusal(2, LEAST) is None
    again = done(ledger, 2, rules=LEAST)
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


def test_a_slot_is_tried_again_below_the_floor_and_trimmed_when_it_is_done() -> None:
    ledger = to_retry(done(Ledger(), 1, 2, 3), 1)
    ledger = done(ledger, 4, 5)
    assert ledger.refusal(1, ONCE) is None
    ledger = done(ledger, 1)
    ledger = done(ledger, 6)
    assert (ledger.floor, ledger.refusal(1, ONCE)) == (3, "passed")


def test_the_floor_never_passes_a_slot_that_is_to_be_made_up_for() -> None:
    every, slots = Every("1m"), [NOON - timedelta(minutes=10 - number) for number in range(8)]
    all_slots = Rules(schedule=every, makes_up=True)
    ledger = done(Ledger(), slots[0], *slots[2:], rules=all_slots)
    assert (ledger.floor, next(ledger.missing(every))) == (slots[0], slots[1])
    assert list(ledger.records) == slots[2:]
    ledger = started(done(ledger, slots[1], rules=all_slots), NOON, all_slots)
    assert (ledger.floor, len(ledger.records)) == (slots[5], 3)
    missing = ledger.missing(every)
    assert [next(missing) for _ in range(2)] == [NOON - timedelta(minutes=m) for m in (2, 1)]


def test_what_is_unfinished_or_to_be_made_up_for_is_kept_up_to_a_number() -> None:
    slots = [NOON - timedelta(minutes=10 - number) for number in range(8)]
    all_slots = Rules(schedule=Every("1m"), makes_up=True)
    with patch.object(ledger_module, "MOST", 5):
        ledger = done(started(Ledger(), 1, LEAST), 2, 3, 4, 5)
        assert (ledger.floor, list(ledger.records)) == (None, [1, 2, 3, 4, 5])
        ledger = done(ledger, 6)
        assert (ledger.floor, list(ledger.records)) == (3, [4, 5, 6])
        ledger = done(Ledger(), slots[0], *slots[2:7], rules=all_slots)
        assert (ledger.floor, list(ledger.records)) == (slots[0], slots[2:7])
        ledger = done(ledger, slots[7], rules=all_slots)
        assert (ledger.floor, list(ledger.records)) == (slots[4], slots[5:])


def test_the_next_slot_follows_the_last_one_that_was_started() -> None:
    hourly, hour = Rules(schedule=Every("1h")), timedelta(hours=1)
    ledger = started(Ledger(), NOON, hourly)
    assert ledger.next == NOON + hour
    assert started(ledger, NOON - hour, hourly).next == NOON + hour
    assert started(ledger, NOON + hour, hourly).next == NOON + 2 * hour


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
    with pytest.raises(TypeError, match="not supported between"):
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

    @rule(minutes=st.integers(1, 10))
    def wait(self, minutes: int) -> None:
        self.now += minutes

    @rule(
        back=st.integers(-15, 15),
        rules=rules,
        end=st.sampled_from([State.DONE, State.DONE, State.FAILED, None]),
    )
    def run(self, back: int, rules: Rules, end: State | None) -> None:
        slot = self.at(self.now - back)
        if self.ledger.refusal(slot, rules) is not None:
            return
        self.token += 1
        if slot not in self.starts:
            assert slot not in self.done
        self.starts.setdefault(slot, []).append(rules.policy)
        self.ledger = self.ledger.started(slot, "h", self.token, self.at(self.now), rules)
        record = self.ledger.records[slot]
        assert record.attempts == len(self.starts[slot])
        if rules is LEAST:
            self.unfinished.add(slot)
        if record.attempts == LEAST.max_attempts:
            self.unfinished.discard(slot)
        if end is not None:
            ended = record.ended(end, self.at(self.now))
            self.ledger = self.ledger.with_record(ended, self.at(self.now), rules)
        if end is State.DONE:
            assert slot not in self.done
            self.done.add(slot)
            self.unfinished.discard(slot)

    @precondition(lambda self: self.ledger.records)
    @rule()
    def load(self) -> None:
        assert Ledger.parse(self.ledger.encode()) == self.ledger

    @invariant()
    def holds(self) -> None:
        for starts in self.starts.values():
            assert len(starts) == 1 or set(starts) == {LEAST.policy}
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
