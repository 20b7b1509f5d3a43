"""The records that the service keeps under names, in use or not.

Contenders leave with their sessions. Records stay until somebody deletes them: those of
counters, latches, gates, barriers and jobs, requests to release locks, and work queues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from coordlock.backend import Listing
from coordlock.errors import InvalidName
from coordlock.jobs.ledger import Ledger
from coordlock.kernel.engine import Engine
from coordlock.model.names import escape, name_in
from coordlock.model.record import NewerFormat, decode
from coordlock.recipes.shared.exactly_once import value_of
from coordlock.recipes.shared.rendezvous import Generations
from coordlock.records.release_requests import asked_in
from coordlock.records.stored_record import MALFORMED, Folder
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import all_of
from coordlock.work import layout

__all__ = ["KINDS", "Kind", "Record", "records"]

Kind = Literal["barrier", "counter", "gate", "job", "latch", "release request", "work queue"]


@dataclass(frozen=True, slots=True)
class Record:
    """A record that the service keeps under a name.

    Attributes:
        name: as the client makes it.
        kind: ``"barrier"``, also for double barriers, ``"counter"``, ``"gate"``, ``"job"``,
            ``"latch"``, ``"release request"`` or ``"work queue"``.
        state: a barrier's ``generations`` that have passed, a counter's ``number``, whether a gate
            is ``open``, a latch's ``remaining`` and ``count``, and of a request to release how many
            contenders were ``asked``. Empty for a job and a work queue: see `Job.info` and
            `WorkQueue.stats`. None if another program wrote the record, or a newer release in an
            unknown format.
    """

    name: str
    kind: Kind
    state: Mapping[str, Any] | None


def _latch(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    count, left = value_of(fields)
    return {"remaining": int(left), "count": int(count)}


def _job(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    Ledger.parse(fields)  # which raises for what another program wrote
    return {}


#: Where each kind is kept, and what makes the state of the fields of a record.
KINDS: Final[Mapping[Kind, tuple[str, Callable[[Mapping[str, Any]], Mapping[str, Any]] | None]]] = {
    "barrier": (Folder.BARRIERS, lambda fields: {"generations": Generations.parse(fields).last}),
    "counter": (Folder.COUNTERS, lambda fields: {"number": int(value_of(fields))}),
    "gate": (Folder.GATES, lambda fields: {"open": not value_of(fields)}),
    "job": (Folder.JOBS, _job),
    "latch": (Folder.LATCHES, _latch),
    "release request": (Folder.RELEASE_REQUESTS, lambda fields: {"asked": len(asked_in(fields))}),
    "work queue": (layout.FOLDER, None),
}


def records(engine: Engine, name: str | None = None) -> Steps[tuple[Record, ...]]:
    """All records, or those under ``name``, sorted by name and kind."""
    service = engine.backend
    service.require("data")
    end = "" if name is None else escape(name)
    places = [f"{engine.data_root}/{folder}/{end}" for folder, _ in KINDS.values()]
    listings = yield from engine.ask(lambda: all_of(map(service.read, places)))
    found = [
        record
        for kind, listing in zip(KINDS, listings, strict=True)
        for record in _in(listing, kind)
    ]
    return tuple(sorted(found, key=lambda record: (record.name, record.kind)))


def _in(listing: Listing, kind: Kind) -> list[Record]:
    state_of = KINDS[kind][1]
    found = []
    for key, stored in listing.values.items():
        try:
            name = name_in(key)
        except InvalidName:
            continue  # none of coordlock's keys
        try:
            state = {} if state_of is None else state_of(decode(stored.data))
        except (NewerFormat, *MALFORMED):
            state = None
        found.append(Record(name, kind, state))
    return found
