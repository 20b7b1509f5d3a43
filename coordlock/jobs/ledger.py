"""What is known of a job's slots, and what follows from that. Pure: no I/O, no clock.

A ledger has a record for each slot that was started or is to be tried again, one for each row of
slots that were skipped, and a floor. A slot without a record is passed if it is at or below the
floor, and otherwise it was never started. So a ledger answers for every slot there can be, and
stays small.

Only trimming raises the floor, to the slot of a record that it drops. It drops the record of the
lowest slot first, and stops at one that is unfinished or that lies after the service's own present,
and before a slot without a record that is to be made up for. So no slot is forgotten that is still
to be started. And the floor never lies in the future: what a host with a fast clock has started
spends those slots alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self, cast

from coordlock.jobs.slots import Kind, Slot, kind_of, loaded, stored

__all__ = ["MOST", "Ledger", "Policy", "SlotRecord", "SlotsAfter", "State"]

#: The slots of a schedule after an instant, in order.
SlotsAfter = Callable[[datetime], Iterator[datetime]]

#: How many records a ledger has at most. It takes that many only if unfinished slots are among
#: them, because nothing trims past those.
MOST: Final = 1000
#: How much is kept of an error.
_LONGEST_ERROR: Final = 200
_KNOWN: Final = frozenset(
    "slot state policy attempts owner token started finished error first count".split()  # noqa: SIM905
)


class Policy(StrEnum):
    """What is promised of each slot."""

    #: No second start: the record is written before the work.
    AT_MOST_ONCE = "at-most-once"
    #: Started again until it is done: the record that it is done is written after the work.
    AT_LEAST_ONCE = "at-least-once"


class State(StrEnum):
    """How far a slot has come."""

    STARTED = "started"  #: it is at work, or its holder has ended or lost the lock at work
    DONE = "done"
    FAILED = "failed"  #: the work has raised
    SKIPPED = "skipped"  #: it was missed, and `catch_up` said not to make up for it, nor for others
    RETRY = "retry"  #: an operator lets it start again


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """What is known of one slot, or of a row of slots that were skipped.

    Times are in seconds since 1970.
    """

    slot: Slot
    state: State
    policy: Policy
    attempts: int = 0
    owner: str = ""
    token: int = 0
    started: float | None = None
    finished: float | None = None
    error: str | None = None
    #: Where slots were skipped, the first of them, and how many; ``slot`` is the last.
    first: Slot | None = None
    count: int = 1
    #: What a newer release has added.
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_unfinished(self) -> bool:
        """Whether it is to be started again."""
        if self.state is State.RETRY:
            return True
        is_open = self.state in (State.STARTED, State.FAILED)
        return is_open and self.policy is Policy.AT_LEAST_ONCE

    def ended(self, state: State, at: float, error: str | None = None) -> Self:
        """The record of this start when its work has ended."""
        text = None if error is None else error[:_LONGEST_ERROR]
        return replace(self, state=state, finished=at, error=text)

    def encode(self) -> dict[str, Any]:
        """The fields of the record."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name in _KNOWN}
        if self.first is None:
            del fields["first"], fields["count"]
        else:
            fields["first"] = stored(self.first)
        return {**self.others, **fields, "slot": stored(self.slot)}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """The record with these ``fields``. Raises what `MALFORMED` lists."""
        started, finished = (
            None if fields[name] is None else float(fields[name])
            for name in ("started", "finished")
        )
        error = fields["error"]
        return cls(
            loaded(fields["slot"]),
            State(fields["state"]),
            Policy(fields["policy"]),
            int(fields["attempts"]),
            str(fields["owner"]),
            int(fields["token"]),
            started,
            finished,
            None if error is None else str(error),
            loaded(fields["first"]) if "first" in fields else None,
            int(fields.get("count", 1)),
            {name: value for name, value in fields.items() if name not in _KNOWN},
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """The records of a job, by their slots in order, and the floor below them; None for none."""

    floor: Slot | None = None
    records: Mapping[Slot, SlotRecord] = field(default_factory=dict)

    @property
    def kind(self) -> Kind | None:
        """Which kind of slots it has; None where it has none."""
        for slot in self.records:
            return kind_of(slot)
        return None if self.floor is None else kind_of(self.floor)

    def is_of(self, slot: Slot) -> bool:
        """Whether it takes slots of that kind."""
        return self.kind in (None, kind_of(slot))

    def refusal(self, slot: Slot, policy: Policy) -> str | None:
        """Why ``slot`` is not to be started: its state, or ``"passed"``; None where it is to be.

        For one that holds the job's lock, or asks before it acquires it: no other start is at work.
        A slot starts again only where both policies allow it, the recorded one and this one.
        """
        record = self.records.get(slot)
        if record is None:
            if self.skip_of(slot) is not None:
                return State.SKIPPED.value
            return "passed" if self.is_passed(slot) else None
        if record.state is State.RETRY:
            return None
        if record.is_unfinished and policy is Policy.AT_LEAST_ONCE:
            return None
        return record.state.value

    def is_passed(self, slot: Slot) -> bool:
        """Whether it lies at or below the floor."""
        return self.floor is not None and not _is_after(slot, self.floor)

    def skip_of(self, slot: Slot) -> SlotRecord | None:
        """The record of the row of skipped slots that ``slot`` lies in; None for none."""
        for record in self.records.values():
            is_row = record.first is not None and not _is_after(record.first, slot)
            if is_row and not _is_after(slot, record.slot):
                return record
        return None

    def missing(self, after: SlotsAfter) -> Iterator[datetime]:
        """The slots of a schedule that have no record and are not passed, in order, for ever.

        Those before the lowest slot with a record don't count.
        """
        lowest = self.lowest
        if not isinstance(lowest, datetime):
            return
        slots = after(lowest)
        while True:
            slot = next(slots)
            if (row := self.skip_of(slot)) is not None:
                slots = after(cast("datetime", row.slot))
            elif slot not in self.records:
                yield slot

    def started(
        self,
        slot: Slot,
        policy: Policy,
        owner: str,
        token: int,
        at: float,
        history: int,
        owed: SlotsAfter | None = None,
    ) -> Self:
        """With a new start of ``slot``, by the holder of the job's lock with that ``token``.

        ``owed`` is the schedule of a job that makes up for all its slots: see `_trimmed`.
        """
        before = self.records.get(slot)
        record = SlotRecord(
            slot,
            State.STARTED,
            policy,
            1 if before is None else before.attempts + 1,
            owner,
            token,
            at,
            others={} if before is None else before.others,
        )
        return self._with([record])._trimmed(history, at, owed, keeps=slot)

    def ended(self, record: SlotRecord, history: int, owed: SlotsAfter | None = None) -> Self:
        """With the end of a start, whose ``record`` tells when that was."""
        at = record.finished or 0.0
        return self._with([record])._trimmed(history, at, owed, keeps=record.slot)

    def skipped(self, slots: Iterable[Slot], policy: Policy, at: float, history: int) -> Self:
        """With ``slots``, which are missing, as skipped. Others may be at work meanwhile.

        They are one row, also with those skipped before, where no other record lies between.
        """
        skips = {
            slot: SlotRecord(slot, State.SKIPPED, policy, finished=at, first=slot) for slot in slots
        }
        rows: list[SlotRecord] = []
        for record in _in_order({**skips, **self.records}).values():
            is_skip = record.state is State.SKIPPED
            if is_skip and rows and rows[-1].state is State.SKIPPED:
                before = rows.pop()
                first, count = before.first or before.slot, before.count + record.count
                record = replace(record, first=first, count=count)
            rows.append(record)
        ledger = replace(self, records={one.slot: one for one in rows})
        return ledger._trimmed(history, at, are_at_work=True)

    def to_retry(self, slot: Slot) -> Self:
        """With ``slot``, which has a record or was skipped, to be started again.

        Raises LookupError for another.
        """
        record, rest = self.records.get(slot), list[SlotRecord]()
        if record is None or record.first is not None:
            if (row := self.skip_of(slot)) is None:
                raise LookupError(slot)
            if row.slot == slot != row.first:  # the row is known by it, so let it end right before
                rest = [replace(row, slot=_right_before(slot), count=row.count - 1)]
            record = SlotRecord(slot, State.SKIPPED, row.policy)
        return self._with([*rest, replace(record, state=State.RETRY)])

    def unfinished(self, policy: Policy) -> list[Slot]:
        """The recorded slots that are to be started again, in order."""
        return [
            slot
            for slot, record in self.records.items()
            if record.is_unfinished and self.refusal(slot, policy) is None
        ]

    @property
    def lowest(self) -> Slot | None:
        """The floor, or where there is none the lowest slot with a record; None for neither."""
        return next(iter(self.records), None) if self.floor is None else self.floor

    def _with(self, records: Iterable[SlotRecord]) -> Self:
        changed = {**self.records, **{one.slot: one for one in records}}
        return replace(self, records=_in_order(changed))

    def _trimmed(
        self,
        history: int,
        at: float,
        owed: SlotsAfter | None = None,
        *,
        keeps: Slot | None = None,
        are_at_work: bool = False,
    ) -> Self:
        """With ``history`` records, or more where unfinished ones, or later ones, are in the way.

        ``at`` is the present by the service's own clock. The record of ``keeps`` stays, and where
        others may be at work, theirs. ``owed`` is the schedule of a job that makes up for all
        slots: the floor does not pass one of them that has no record.
        """
        kept, floor = dict(self.records), self.floor
        for slot, record in self.records.items():
            if len(kept) <= history or _is_later(slot, at):
                break
            is_at_work = are_at_work and record.state is State.STARTED
            if slot == keeps or record.is_unfinished or is_at_work:
                if self.is_passed(slot):
                    continue  # it was trimmed before, and is tried again
                break
            begin = record.first or slot
            if owed and isinstance(floor, datetime) and _is_after(begin, next(owed(floor))):
                break
            del kept[slot]
            floor = slot if floor is None or _is_after(slot, floor) else floor
        return replace(self, floor=floor, records=kept)

    def encode(self) -> dict[str, Any]:
        """The fields of the stored record."""
        return {
            "floor": None if self.floor is None else stored(self.floor),
            "slots": [one.encode() for one in self.records.values()],
        }

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """The ledger of a stored record with these ``fields``. Raises what `MALFORMED` lists."""
        if not fields:
            return cls()
        floor = None if fields["floor"] is None else loaded(fields["floor"])
        records = {one.slot: one for one in map(SlotRecord.parse, fields["slots"])}
        if len({kind_of(slot) for slot in (*records, *([] if floor is None else [floor]))}) > 1:
            raise ValueError("slots of both kinds")
        return cls(floor, _in_order(records))


def _in_order(records: Mapping[Slot, SlotRecord]) -> dict[Slot, SlotRecord]:
    return {slot: records[slot] for slot in sorted(records)}


def _is_after(one: Slot, other: Slot) -> bool:
    """Whether ``one`` comes after ``other``, which is of the same kind."""
    return one > other  # type: ignore[operator]


def _right_before(slot: Slot) -> Slot:
    return slot - 1 if isinstance(slot, int) else slot - timedelta.resolution


def _is_later(slot: Slot, at: float) -> bool:
    """Whether ``slot`` is an instant after ``at``."""
    return isinstance(slot, datetime) and slot > datetime.fromtimestamp(at, UTC)
