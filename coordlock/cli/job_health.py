"""Whether a job does its work: for ``coordlock jobs check`` and ``coordlock doctor``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from coordlock.jobs.ledger import State
from coordlock.jobs.slots import shown
from coordlock.jobs.view import JobInfo, output_key
from coordlock.model.record import NewerFormat, decode
from coordlock.records.stored_record import MALFORMED
from coordlock.runtime.driver import run

if TYPE_CHECKING:
    from coordlock.client import Client

__all__ = ["Health", "health_of", "present_of", "stderr_of"]

#: How much later than its time a slot may start.
_PUNCTUAL: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a job is in order, and in ``text`` why."""

    state: Literal["ok", "late", "failed"]
    text: str


def health_of(job: JobInfo, now: datetime, max_age: timedelta | None = None) -> Health:
    """Whether ``job`` does its work at ``now``, by the service's clock.

    It has failed if the last slot that came to an end did, or its record can't be read. It is late
    if no slot was started, or none was done within ``max_age``, or if the next slot of its schedule
    was not started five minutes after its time.
    """
    if job.problem is not None:
        return Health("failed", job.problem)
    if not job.slots:
        return Health("late", "nothing is known of it: no slot was started")
    ended = [record for record in job.slots if record.finished or record.state is State.INTERRUPTED]
    if ended and (last := ended[-1]).state in (State.FAILED, State.INTERRUPTED):
        how = "has failed" if last.state is State.FAILED else "was interrupted"
        why = f": {last.error}" if last.error else ""
        return Health("failed", f"slot {shown(last.slot)}, started by {last.owner}, {how}{why}")
    done = [record for record in ended if record.state is State.DONE]
    newest = max((record.finished for record in done if record.finished), default=None)
    if newest is None:
        text = "no slot was done yet"
    else:
        text = f"slot {shown(done[-1].slot)} was done at {shown(newest.replace(microsecond=0))}"
    if max_age is not None and (newest is None or now - newest > max_age):
        return Health("late", f"{text}, so none within {max_age}")
    if job.next is not None and now - job.next > _PUNCTUAL:
        return Health("late", f"no host has started slot {shown(job.next)}; {text}")
    return Health("ok", text)


def present_of(client: Client) -> datetime:
    """The service's own time; the machine's where the service tells none."""
    engine = client._engine
    now = run(engine.ask(engine.backend.service_time))
    return datetime.fromtimestamp(time.time() if now is None else now, UTC)


def stderr_of(client: Client, name: str) -> Mapping[str, Any] | None:
    """The ``slot`` and the ``stderr`` of the last command that failed and kept it; None for none.

    `coordlock run --keep-stderr` keeps it.
    """
    engine, key = client._engine, output_key(client._engine, name)
    stored = run(engine.ask(lambda: engine.backend.read(key))).values.get(key)
    try:
        fields = {} if stored is None else decode(stored.data)
        return {name: str(fields[name]) for name in ("slot", "stderr")} if fields else None
    except (NewerFormat, *MALFORMED):
        return None
