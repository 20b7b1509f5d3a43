"""``coordlock ls``: the names in use, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase

from coordlock.cli.connection import Service, connected
from coordlock.cli.exits import complain
from coordlock.cli.kept import filled, state_of
from coordlock.cli.queues import Queue, kind_of
from coordlock.cli.table import print_table
from coordlock.cli.text import age, echo
from coordlock.client import Client
from coordlock.errors import AuthenticationFailed
from coordlock.model.queue_entry import QueueEntry

__all__ = ["ls"]


def ls(*, patterns: list[str], is_kept: bool, service: Service, as_json: bool) -> None:
    """List the locks that are in use.

    Elections, groups and barriers are listed, too. The column KIND says what each is, if known.
    HOLDER is the first holder, and QUEUED how long ago it asked: a holder that had to wait has held
    the lock for less. WAITS is how long the oldest waiter has waited.

    With PATTERNs, the list has only names that match one of them: * stands for anything, ? for any
    character, [ab] for a or b. Quote them, or the shell takes them for files.

    With --kept, it lists the records that the service keeps under names, in use or not.
    """
    settings = service.settings()
    if is_kept:
        with connected(settings) as client:
            kept = filled(client, (r for r in client.admin.records() if _matches(r.name, patterns)))
        records: list[Mapping[str, object]] = [
            {"name": record.name, "kind": record.kind, "state": record.state}
            if as_json
            else {"NAME": record.name, "KIND": record.kind, "STATE": state_of(record)}
            for record in kept
        ]
        _print(records, "record", patterns, as_json=as_json)
        return
    refused: dict[str, AuthenticationFailed] = {}
    with connected(settings) as client:
        names = [name for name in client.admin.names() if _matches(name, patterns)]
        queues = {name: _queue_of(client, name, refused) for name in sorted(names)}
    shown = _fields if as_json else _row
    found = [shown(name, queue, settings.scheme) for name, queue in queues.items() if queue]
    if refused and not found:
        raise next(iter(refused.values()))
    _print(found, "lock in use", patterns, as_json=as_json)
    if refused:
        name, error = next(iter(refused.items()))
        others = f", nor {len(refused) - 1} more" if len(refused) > 1 else ""
        complain(f"{name!r} could not be read{others}: {error}")


def _queue_of(client: Client, name: str, refused: dict[str, AuthenticationFailed]) -> Queue:
    """The queue, empty where it may not be read, which is noted: it may be another program's."""
    try:
        return client.admin.contenders(name)
    except AuthenticationFailed as error:
        refused[name] = error
        return ()


def _matches(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _print(
    rows: Sequence[Mapping[str, object]], what: str, patterns: list[str], *, as_json: bool
) -> None:
    if as_json:
        echo(json.dumps(rows))
    elif rows:
        print_table(rows)
    else:
        matching = " or ".join(map(repr, patterns))
        complain(f"no {what} matches {matching}" if patterns else f"there is no {what}")


def _row(name: str, queue: Queue, scheme: str) -> dict[str, object]:
    holder, waiters = _parts(queue)
    oldest = waiters[0] if waiters else None
    return {
        "NAME": name,
        "KIND": kind_of(queue, scheme),
        "HOLDERS": len(queue) - len(waiters),
        "WAITERS": len(waiters),
        "HOLDER": holder and holder.owner,
        "QUEUED": age(holder.age if holder else None),
        "OLDEST WAITER": oldest and oldest.owner,
        "WAITS": age(oldest.age if oldest else None),
    }


def _fields(name: str, queue: Queue, scheme: str) -> dict[str, object]:
    holder, waiters = _parts(queue)
    return {
        "name": name,
        "kind": kind_of(queue, scheme),
        "holders": len(queue) - len(waiters),
        "waiters": len(waiters),
        "token": holder and holder.token,
        "holder": holder and holder.owner and str(holder.owner),
        "queued_since": holder and holder.owner and holder.owner.since,
        "oldest_waiter": waiters[0].owner and asdict(waiters[0].owner) if waiters else None,
    }


def _parts(queue: Queue) -> tuple[QueueEntry | None, list[QueueEntry]]:
    """The first holder, and the waiters, the oldest first."""
    holder = next((entry for entry in queue if entry.holding), None)
    return holder, [entry for entry in queue if not entry.holding]
