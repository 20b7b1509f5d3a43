"""``coordlock show``: who holds a lock, and who waits for it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from coordlock.cli.connection import Service, connected
from coordlock.cli.exits import complain
from coordlock.cli.kept import filled, state_of
from coordlock.cli.queues import kind_of, mode_of
from coordlock.cli.table import print_table
from coordlock.cli.text import age, echo
from coordlock.client import Client
from coordlock.errors import AuthenticationFailed, Unsupported
from coordlock.model.claim import Permit
from coordlock.model.queue_entry import QueueEntry

if TYPE_CHECKING:
    from coordlock.client.records import Record  # which loads all recipes

__all__ = ["show"]

#: What holding a place means in a queue of a kind.
_HOLDS: Final[Mapping[str | None, str]] = {
    "election": "leads",
    "group": "is there",
    "barrier": "is there",
    "double barrier": "is there",
}


def show(*, name: str, service: Service, as_json: bool) -> None:
    """Show who holds the lock NAME, and who waits for it.

    NAME may also be an election with its candidates, a group with its members, or a barrier.
    Records under NAME, such as a counter or a work queue, are shown below.

    QUEUED is how long ago each asked for it. A holder that had to wait has held it for less.
    `coordlock events NAME` follows what changes.
    """
    settings = service.settings()
    with connected(settings) as client:
        queue, kept = client.admin.contenders(name), _kept_of(client, name)
    kind = kind_of(queue, settings.scheme)
    if as_json:
        records = [{"kind": record.kind, "state": record.state} for record in kept]
        contenders = list(map(_fields, queue))
        echo(json.dumps({"name": name, "kind": kind, "contenders": contenders, "kept": records}))
        return
    if queue:
        print_table([_row(entry, kind) for entry in queue], optional="VALUE")
    elif not kept:
        complain(f"no client holds {name!r} or waits for it")
    for record in kept:
        echo(f"{record.kind}: {state_of(record)}")


def _kept_of(client: Client, name: str) -> list[Record]:
    """What is kept under ``name``; nothing where that can't be, or may not be read."""
    with suppress(Unsupported, AuthenticationFailed):
        return filled(client, client.admin.records(name))
    return []


def _row(entry: QueueEntry, kind: str | None) -> dict[str, object]:
    return {
        "": entry.position,
        "STATE": _HOLDS.get(kind, "holds") if entry.holding else "waits",
        "MODE": mode_of(entry),
        "TOKEN": entry.token,
        "QUEUED": age(entry.age),
        "OWNER": entry.owner,
        "VALUE": _value(entry),
    }


def _fields(entry: QueueEntry) -> dict[str, Any]:
    owner = entry.owner
    return {
        "position": entry.position,
        "holding": entry.holding,
        "mode": None if isinstance(entry.claim, Permit) else entry.claim.name,
        "permits": entry.claim.of if isinstance(entry.claim, Permit) else None,
        "converting_to": None if entry.converting_to is None else entry.converting_to.name,
        "token": entry.token,
        "owner": None if owner is None else dataclasses.asdict(owner),
        "age": entry.age,
        "value": entry.value.decode("utf-8", "backslashreplace"),
        "session": entry.session,
        "key": entry.contender.key,
    }


def _value(entry: QueueEntry) -> str:
    """What it publishes beside who it is."""
    if entry.owner is None or not entry.owner.host:
        return ""  # it is known by what it publishes
    return entry.value.decode("utf-8", "backslashreplace")
