"""What is known of a job's slots, and what follows from that. Pure: no I/O, no clock.

A ledger has a record for each slot that was started or is to be tried again, and a floor. A slot
without a record is passed if it is at or below the floor, and otherwise it was never started. So a
ledger answers for every slot there can be, and stays small.

Only trimming raises the floor, to the slot of a record that it drops. It drops the record of the
lowest slot first, and stops at one that is open or that lies after the service's own present, and
before a slot without a record that is to be made up for. So no slot is forgotten that is still to
be started, unless 1,000 records have come together. And the floor never lies in the future: what a
host with a fast clock has started spends those slots alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import Any, Final, Literal, Self, TypeVar

from coordlock.jobs.schedule import Schedule, latest
from coordlock.jobs.slots import Kind, Slot, kind_of, loaded, stored

__all__ = ["KEPT", "MOST", "Ledger", "Policy", "Rules", "SlotInfo", "State", "due"]

T = TypeVar("T")

#: How many ended slots a job keeps.
KEPT: Final = 100
#: How many records a job keeps at most, where it has yet to start some of the slots among them.
MOST: Final = 1000
#: How many missed slots are made up for in one go. Those after them have their turn next time.
_MADE_UP: Final = 500
#: How much is kept of an error.
_LONGEST_ERROR: Final = 200
_LONGEST_DELAY: Final = timedelta(hours=1)


class Policy(StrEnum):
    """What is promised of each slot."""

    #: No second start: the record is written before the work.
    AT_MOST_ONCE = "at-most-once"
    #: Started again until it is done: the record that it is done is written after the work.
    AT_LEAST_ONCE = "at-least-once"


class State(StrEnum):
    """How far a slot has come."""

    RUNNING = "running"  #: in a record: it was started, and nobody has recorded an end
    DONE = "done"
    FAILED = "failed"  #: the work has raised
    INTERRUPTED = "interrupted"  #: its holder has ended, or lost the lock, at work
    RETRY = "retry"  #: an operator lets it start again


@dataclass(frozen=True, slots=True)
class Rules:
    """What the options of a job say about its slots.

    Attributes:
        policy: what is promised of each slot.
        max_attempts: how often a slot is started at least once.
        retry_delay: from the first failure to the next start; it doubles, up to an hour.
        schedule: which slots there are; None for those that callers name.
        makes_up: whether all missed slots of the schedule are made up for.
    """

    policy: Policy = Policy.AT_MOST_ONCE
    max_attempts: int = 10
    retry_delay: timedelta = timedelta(seconds=10)
    schedule: Schedule | None = None
    makes_up: bool = False

    def keeps_open(self, record: SlotInfo) -> bool:
        """Whether the slot may be started again by a job whose policy allows it."""
        if record.state in (State.DONE, State.RETRY):
            return record.state is State.RETRY
        return record.policy is Policy.AT_LEAST_ONCE and record.attempts < self.max_attempts

    def retry_at(self, record: SlotInfo | None) -> datetime | None:
        """When a slot that has failed may be started again; None for at once."""
        if record is None or record.finished is None or record.state is not State.FAILED:
            return None
        if not self.retry_delay:
            return None  # however far the clocks of a service's servers are apart
        doubled = 2.0 ** min(record.attempts - 1, 20)
        return record.finished + min(self.retry_delay * doubled, _LONGEST_DELAY)


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """One slot of a job, as its record says.

    Attributes:
        slot: an instant in UTC, or an integer.
        state: ``"running"``; ``"done"``; ``"failed"``, where the work has raised;
            ``"interrupted"``, where its holder has ended, or lost the lock, at work; ``"retry"``,
            where an operator lets it start again.
        policy: by which it was started, ``"at-most-once"`` or ``"at-least-once"``.
        attempts: how often it was started.
        owner: who started it last, by its own account.
        token: the fencing token of that start.
        started: when that was, by the service's clock where that is known.
        finished: when it ended, or was found interrupted; None while it has not.
        error: what the work has raised.
    """

    slot: Slot
    state: State
    policy: Policy
    attempts: int
    owner: str
    token: int
    started: datetime
    finished: datetime | None = None
    error: str | None = None
    #: What a newer release has added.
    _others: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def ended(self, state: State, at: datetime, error: str | None = None) -> Self:
        """The record of this start when its work has ended."""
        text = None if error is None else error[:_LONGEST_ERROR]
        return replace(self, state=state, finished=at, error=text)

    def encode(self) -> dict[str, Any]:
        """The fields of the record."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "_others"}
        return {**self._others, **{name: stored(value) for name, value in fields.items()}}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """The record with these ``fields``. Raises what `MALFORMED` lists."""
        others = dict(fields)
        take = others.pop
        return cls(
            loaded(take("slot")),
            State(take("state")),
            Policy(take("policy")),
            int(take("attempts")),
            str(take("owner")),
            int(take("token")),
            datetime.fromisoformat(take("started")),
            _optional(datetime.fromisoformat, take("finished")),
            _optional(str, take("error")),
            others,
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """The records of a job, by their slots in order, and the floor below them; None for none."""

    floor: Slot | None = None
    records: Mapping[Slot, SlotInfo] = field(default_factory=dict)
    #: The slot that the schedule has after the last one; None where no schedule is known.
    next: datetime | None = None

    @property
    def kind(self) -> Kind | None:
        """Which kind of slots it has; None where it has none."""
        return None if self.lowest is None else kind_of(self.lowest)

    def refusal(self, slot: Slot, rules: Rules) -> State | Literal["passed"] | None:
        """Why ``slot`` is not to be started: its state, or ``"passed"``; None where it is to be.

        For one that holds the job's lock, or asks before it acquires it: no other start is at work.
        A slot starts again only where both policies allow it, the recorded one and this one.
        """
        record = self.records.get(slot)
        if record is None:
            return "passed" if self.is_passed(slot) else None
        may_start = record.state is State.RETRY or rules.policy is Policy.AT_LEAST_ONCE
        return None if may_start and rules.keeps_open(record) else record.state

    def is_passed(self, slot: Slot) -> bool:
        """Whether it lies at or below the floor."""
        return self.floor is not None and slot <= self.floor  # type: ignore[operator]  # of one kind

    def missing(self, schedule: Schedule) -> Iterator[datetime]:
        """The slots of a schedule that have no record and are not passed, in order, for ever.

        Those before the lowest slot with a record don't count.
        """
        if isinstance(lowest := self.lowest, datetime):
            yield from (slot for slot in schedule.after(lowest) if slot not in self.records)

    def started(self, slot: Slot, owner: str, token: int, at: datetime, rules: Rules) -> Self:
        """With a new start of ``slot``, by the holder of the job's lock with that ``token``."""
        before = self.records.get(slot)
        record = SlotInfo(
            slot,
            State.RUNNING,
            rules.policy,
            1 if before is None else before.attempts + 1,
            owner,
            token,
            at,
            _others={} if before is None else before._others,
        )
        ledger = self.with_record(record, at, rules)
        if rules.schedule and isinstance(slot, datetime) and slot == max(ledger.records):
            ledger = replace(ledger, next=next(rules.schedule.after(slot)))
        return ledger

    def with_record(self, record: SlotInfo, at: datetime, rules: Rules) -> Self:
        """With ``record``, and with `KEPT` others, or more where open or later ones are in the way.

        ``at`` is the present by the service's own clock. A job that makes up for all slots of its
        schedule never lets the floor pass one of them that has no record.
        """
        records = {**self.records, record.slot: record}
        kept, floor = {slot: records[slot] for slot in sorted(records)}, self.floor
        for slot, old in list(kept.items()):
            if len(kept) <= KEPT or (isinstance(slot, datetime) and slot > at):
                break
            is_needed = slot == record.slot or (rules.keeps_open(old) and len(kept) <= MOST)
            if is_needed and self.is_passed(slot):
                continue  # it was trimmed before, and is tried again
            if rules.makes_up and rules.schedule and isinstance(floor, datetime):
                owed = next(rules.schedule.after(floor))
                is_needed |= slot > owed and len(kept) <= MOST  # type: ignore[operator]
            if is_needed:
                break
            del kept[slot]
            floor = slot if floor is None else max(slot, floor)
        return replace(self, floor=floor, records=kept)

    @property
    def lowest(self) -> Slot | None:
        """The floor, or where there is none the lowest slot with a record; None for neither."""
        return next(iter(self.records), None) if self.floor is None else self.floor

    def encode(self) -> dict[str, Any]:
        """The fields of the stored record."""
        return {
            "floor": stored(self.floor),
            "next": stored(self.next),
            "slots": [record.encode() for record in self.records.values()],
        }

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """The ledger of a stored record with these ``fields``. Raises what `MALFORMED` lists."""
        if not fields:
            return cls()
        records = {record.slot: record for record in map(SlotInfo.parse, fields["slots"])}
        ledger = cls(
            _optional(loaded, fields["floor"]),
            {slot: records[slot] for slot in sorted(records)},
            _optional(datetime.fromisoformat, fields["next"]),
        )
        all(map(ledger.is_passed, records))  # raises TypeError for slots of both kinds
        return ledger


def _optional(make: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else make(value)


def due(ledger: Ledger, schedule: Schedule, now: float, rules: Rules) -> list[Slot]:
    """The slots that are to be started at ``now``, in seconds since 1970, in order.

    Those that are open are, once their time to be started again has come, and the latest one. A
    slot is missed if it lies between the floor, or the lowest record where there is none, and the
    latest slot, and has no record: the job makes up for all of them, or for none.
    """
    newest = latest(schedule, now)
    wanted: list[Slot] = [
        slot for slot in ledger.records if isinstance(slot, datetime) and slot < newest
    ]
    if rules.makes_up:
        missed = takewhile(lambda slot: slot < newest, ledger.missing(schedule))
        wanted += islice(missed, _MADE_UP)
    present = datetime.fromtimestamp(now, newest.tzinfo)
    return [
        slot
        for slot in sorted([*wanted, newest])
        if ledger.refusal(slot, rules) is None
        and (rules.retry_at(ledger.records.get(slot)) or present) <= present
    ]
