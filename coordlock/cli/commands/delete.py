"""``coordlock delete``: what is kept under names, and not needed any more."""

from __future__ import annotations

from typing import Final

from coordlock.cli.confirm import confirm
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain
from coordlock.cli.kept import filled, state_of
from coordlock.cli.parser import UsageError
from coordlock.cli.text import echo, listed
from coordlock.client import Client
from coordlock.client.records import Kind, Record
from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    NameConflict,
    SessionLost,
)

__all__ = ["delete"]

#: What clients find afterwards.
_AFTERWARDS: Final[dict[Kind, str]] = {
    "barrier": "begins anew",
    "counter": "begins anew at 0",
    "gate": "stays open",
    "job": "forgets its slots",
    "latch": "is closed again",
    "release request": "is gone",
    "work queue": "is listed again with the next item",
}


def delete(*, names: list[str], kind: Kind | None, yes: bool, service: Service) -> int:
    """Delete what is kept under NAMEs.

    `coordlock ls --kept` lists all records. A deleted counter is 0, and a deleted latch is closed.
    A late write that was meant for the deleted record is refused.

    The command refuses to delete what is in use: a gate that is shut, a barrier while a client
    holds the name or waits for it, a job at work, a work queue with items. A deleted work queue is
    listed again when the next item is put.

    The exit status is 1 if something was not there, or was refused.
    """
    with service.connected() as client:
        chosen = [one for name in dict.fromkeys(names) for one in _chosen(client, name, kind)]
        missing = [name for name in names if name not in {one.name for one in chosen}]
        for name in missing:
            complain(f"no {kind or 'record'} is kept under {name!r}")
        if chosen:
            facts = [
                f"  {one.kind} {one.name!r}: {state_of(one)}; it {_AFTERWARDS[one.kind]}"
                for one in chosen
            ]
            confirm(f"Delete {listed([repr(one.name) for one in chosen])}?", *facts, yes=yes)
        status = Exit.FAILED if missing else Exit.OK
        for one in chosen:
            try:
                was_there = client.admin.delete(one.name, one.kind)
            except (AuthenticationFailed, BackendUnavailable, SessionLost):
                raise
            except (BackendError, NameConflict) as error:
                complain(error)
                status = Exit.FAILED
            else:
                echo(f"{'deleted' if was_there else 'already gone'}: {one.kind} {one.name}")
                status = status if was_there else Exit.FAILED
    return status


def _chosen(client: Client, name: str, kind: Kind | None) -> list[Record]:
    found = filled(client, client.admin.records(name))
    if kind is not None:
        return [one for one in found if one.kind == kind]
    if len(found) > 1:
        kinds = listed([one.kind for one in found])
        raise UsageError(f"{name!r} has a {kinds}: say which with --kind")
    return found
