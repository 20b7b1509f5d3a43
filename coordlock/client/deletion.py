"""Deleting what the service keeps under a name: each kind only where it does no harm.

A late client never changes a record that was made anew: see `StoredRecord`. What else could go
wrong is checked here before, and then the record is deleted only if it is as it was checked.

* **A barrier**: a party that has left the queue finds out from the record whether it has passed. So
  its queue must be empty. A party that leaves during the deletion gets an error: its outcome is
  unknown.
* **A gate** that is shut would open, so it must be open.
* **A job** must not be at work, or its holder could not record the end.
* **A request to release a lock**: nobody may hold the lock or wait for it.
* **A work queue**: see `coordlock.work.view.unlisted`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, get_args

from coordlock.backend import Delete
from coordlock.client.records import KINDS, Kind
from coordlock.errors import NameConflict
from coordlock.jobs.view import output_key, queue_of
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.recipes.shared.exactly_once import value_of
from coordlock.records.stored_record import Folder, StoredRecord
from coordlock.runtime.driver import Steps
from coordlock.work.store import Store
from coordlock.work.view import unlisted

__all__ = ["deleted"]

#: The kinds of records that belong to a queue of their name; that of a job is one of coordlock's.
_QUEUED: Final = frozenset({"barrier", "job", "release request"})


def deleted(engine: Engine, name: str, kind: Kind) -> Steps[bool]:
    """Delete what is kept as ``kind`` under ``name``; whether there was anything.

    Raises ValueError for another kind, `NameConflict`, and what reading it raises.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, not {kind!r}")
    engine.backend.require("data")
    if kind == "work queue":
        return (yield from engine.bounded(unlisted(Store(engine, name))))
    folder, state_of = KINDS[kind]
    assert isinstance(folder, Folder)
    assert state_of is not None

    def parse(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        if fields:
            state_of(fields)  # which raises for what another program wrote
        return fields

    record = StoredRecord(engine, folder, name, parse, replaces=kind == "release request")
    check = partial(_check, engine, name, kind)
    was_there = yield from engine.bounded(record.delete(check))
    if kind == "job":
        yield from engine.ask(lambda: engine.backend.write([Delete(output_key(engine, name))]))
    return was_there


def _check(engine: Engine, name: str, kind: Kind, fields: Mapping[str, Any]) -> Steps[None]:
    """Check the record with these ``fields``, which were just read. Raises `NameConflict`."""
    problem = advice = ""
    if kind == "gate" and value_of(fields):
        problem, advice = "it is shut, and would open", "open it first"
    if kind in _QUEUED:
        queue = queue_of(name) if kind == "job" else name
        # After the record was read: a client that enqueues from now on is not in that record.
        ask = partial(engine.backend.snapshot, queue, owners=True)
        if there := (yield from retried(ask, engine.timers)).contenders:
            problem, advice = f"{there[0]} is in the queue {name!r}", "wait until it is empty"
            if kind == "job":
                problem = f"it is at work by {there[0].owner}"
    if problem:
        what = f"the {kind} {name!r} was not deleted, because {problem}: {advice}"
        raise NameConflict(name, "deleted", kind, "", what)
