"""Jobs as they are shown: the slots of each, and which of them is at work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from coordlock.errors import InvalidName
from coordlock.jobs.ledger import Ledger, SlotInfo, State
from coordlock.jobs.slots import Kind, Slot
from coordlock.kernel.engine import Engine
from coordlock.model.contender import Contender
from coordlock.model.names import escape, internal, name_in
from coordlock.model.record import NewerFormat, decode
from coordlock.records.stored_record import MALFORMED, Folder, StoredRecord
from coordlock.runtime.driver import Steps

__all__ = ["JobInfo", "info", "jobs", "output_key", "queue_of", "record_of"]


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job, as the service keeps it.

    Attributes:
        name: the job's.
        kind: what its slots are, ``"instant"`` or ``"integer"``; None while there were none.
        floor: slots up to this one are passed, unless they are listed; None for no floor.
        next: the slot that its schedule has after the last one; None where it has no schedule.
        slots: the slots with a record, in order.
        problem: why the record can't be read, as where a newer release wrote it; None where it can.
    """

    name: str
    kind: Kind | None
    floor: Slot | None
    next: datetime | None
    slots: tuple[SlotInfo, ...]
    problem: str | None = None


def queue_of(name: str) -> str:
    """The queue of the job's lock, which no lock of a user can have."""
    return internal(f"job-{escape(name)}")


def record_of(engine: Engine, name: str, guard: Contender | None = None) -> StoredRecord[Ledger]:
    """The job's record; with ``guard``, while that is in its queue."""
    return StoredRecord(engine, Folder.JOBS, name, Ledger.parse, guard=guard)


def output_key(engine: Engine, name: str) -> str:
    """The key of what the last command that failed wrote to its stderr."""
    return f"{engine.data_root}/@job-output/{escape(name)}"


def info(engine: Engine, name: str, ledger: Ledger, record: StoredRecord[Ledger]) -> Steps[JobInfo]:
    """What ``ledger``, which was read of ``record``, says of the job, and who is at work."""
    queue, at_work = queue_of(name), set[int | None]()
    while (
        begun := {slot.token for slot in ledger.records.values() if slot.state is State.RUNNING}
        - at_work
    ):
        snapshot = yield from engine.repeated(lambda: engine.backend.snapshot(queue, owners=True))
        at_work = {contender.token for contender in snapshot.contenders}
        if begun <= at_work:
            break
        # Who is not there any more may have recorded its end before it left.
        before, ledger = ledger, (yield from record.read())
        if ledger == before:
            break
    slots = tuple(
        replace(slot, state=State.INTERRUPTED)
        if slot.state is State.RUNNING and slot.token not in at_work
        else slot
        for slot in ledger.records.values()
    )
    return JobInfo(name, ledger.kind, ledger.floor, ledger.next, slots)


def jobs(engine: Engine) -> Steps[tuple[JobInfo, ...]]:
    """All jobs that the service keeps, sorted by names."""
    engine.backend.require("data")
    folder = f"{engine.data_root}/{Folder.JOBS}/"
    listing = yield from engine.repeated(lambda: engine.backend.read(folder))
    found = []
    for key, stored in listing.values.items():
        try:
            name = name_in(key)
        except InvalidName:
            continue  # none of coordlock's keys
        try:
            ledger = Ledger.parse(decode(stored.data))
        except NewerFormat as newer:
            found.append(JobInfo(name, None, None, None, (), f"its record {newer}"))
        except MALFORMED:
            problem = "its record is not as coordlock writes it"
            found.append(JobInfo(name, None, None, None, (), problem))
        else:
            found.append((yield from info(engine, name, ledger, record_of(engine, name))))
    return tuple(sorted(found, key=lambda job: job.name))
