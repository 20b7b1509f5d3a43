"""Jobs as they are shown: the slots of each, and which of them is at work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from coordlock.backend import VersionedValue
from coordlock.errors import InvalidName
from coordlock.jobs.ledger import Ledger, SlotRecord, State
from coordlock.jobs.slots import Kind, Slot
from coordlock.kernel.engine import Engine
from coordlock.kernel.stored_record import MALFORMED, Folder, StoredRecord
from coordlock.model.contender import Contender
from coordlock.model.names import check_name, escape, internal, unescape
from coordlock.model.record import NewerFormat, decode
from coordlock.runtime.driver import Steps

__all__ = ["JobInfo", "SlotInfo", "SlotState", "info", "jobs", "queue_of", "record_of"]

SlotState = Literal["running", "interrupted", "done", "failed", "skipped", "retry"]


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """One slot of a job, or a row of slots that were skipped, as its record says.

    Attributes:
        slot: an instant in UTC, or an integer; the last one of a row.
        state: ``"running"``; ``"interrupted"``, where its holder has ended, or lost the lock, at
            work; ``"done"``; ``"failed"``, where the work has raised; ``"skipped"``, where it was
            missed and is not made up for; ``"retry"``, where an operator lets it start again.
        policy: by which it was started, ``"at-most-once"`` or ``"at-least-once"``.
        attempts: how often it was started.
        owner: who started it last, by its own account.
        token: the fencing token of that start; 0 for none.
        started: when that was, by the service's clock where that is known.
        finished: when it ended; None while it has not.
        error: what the work has raised.
        first: the first slot of a row of skipped ones; None for a single slot.
        count: how many slots the row has; 1 for a single slot.
    """

    slot: Slot
    state: SlotState
    policy: str
    attempts: int
    owner: str
    token: int
    started: datetime | None
    finished: datetime | None
    error: str | None
    first: Slot | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job, as the service keeps it.

    Attributes:
        name: the job's.
        kind: what its slots are, ``"instant"`` or ``"integer"``; None while there were none.
        floor: slots up to this one are passed, unless they are listed; None for no floor.
        slots: the slots with a record, in order.
        problem: why the record can't be read, as where a newer release wrote it; None where it can.
    """

    name: str
    kind: Kind | None
    floor: Slot | None
    slots: tuple[SlotInfo, ...]
    problem: str | None = None


def queue_of(name: str) -> str:
    """The queue of the job's lock, which no lock of a user can have."""
    return internal(f"job-{escape(name)}")


def record_of(engine: Engine, name: str, guard: Contender | None = None) -> StoredRecord[Ledger]:
    """The job's record; with ``guard``, while that is in its queue."""
    return StoredRecord(engine, Folder.JOBS, name, Ledger.parse, guard=guard)


def info(engine: Engine, name: str, ledger: Ledger, record: StoredRecord[Ledger]) -> Steps[JobInfo]:
    """What ``ledger``, which was read of ``record``, says of the job, and who is at work."""
    queue, at_work = queue_of(name), set[int | None]()
    while (
        begun := {one.token for one in ledger.records.values() if one.state is State.STARTED}
        - at_work
    ):
        snapshot = yield from engine.repeated(lambda: engine.backend.snapshot(queue, owners=True))
        at_work = {one.token for one in snapshot.contenders}
        if begun <= at_work:
            break
        # Who is not there any more may have recorded its end before it left.
        before, ledger = ledger, (yield from record.read())
        if ledger == before:
            break
    slots = tuple(_shown(one, at_work) for one in ledger.records.values())
    return JobInfo(name, ledger.kind, ledger.floor, slots)


def jobs(engine: Engine) -> Steps[tuple[JobInfo, ...]]:
    """All jobs that the service keeps, sorted by names."""
    engine.backend.require("data")
    folder = f"{engine.data_root}/{Folder.JOBS}/"
    listing = yield from engine.repeated(lambda: engine.backend.read(folder))
    found = []
    for name, stored in _named(listing.values).items():
        try:
            ledger = Ledger.parse(decode(stored.data))
        except NewerFormat as newer:
            found.append(JobInfo(name, None, None, (), f"its record {newer}"))
        except MALFORMED:
            found.append(JobInfo(name, None, None, (), _MALFORMED))
        else:
            found.append((yield from info(engine, name, ledger, record_of(engine, name))))
    return tuple(sorted(found, key=lambda one: one.name))


_MALFORMED: Final = "its record is not as coordlock writes it"


def _named(values: Mapping[str, VersionedValue]) -> dict[str, VersionedValue]:
    named = {}
    for key, stored in values.items():
        try:
            named[check_name(unescape(key.rpartition("/")[2]) or "")] = stored
        except InvalidName:
            continue  # none of coordlock's keys
    return named


def _shown(record: SlotRecord, at_work: set[int | None]) -> SlotInfo:
    state: SlotState
    match record.state:
        case State.STARTED:
            state = "running" if record.token in at_work else "interrupted"
        case State.DONE:
            state = "done"
        case State.FAILED:
            state = "failed"
        case State.SKIPPED:
            state = "skipped"
        case State.RETRY:
            state = "retry"
    return SlotInfo(
        record.slot,
        state,
        record.policy.value,
        record.attempts,
        record.owner,
        record.token,
        _instant(record.started),
        _instant(record.finished),
        record.error,
        record.first if record.count > 1 else None,
        record.count,
    )


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
