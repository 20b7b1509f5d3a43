"""``coordlock ls``: the names in use, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from coordlock.cli.connection import Service, connected
from coordlock.cli.exits import complain
from coordlock.cli.kept import document_of, filled, state_of
from coordlock.cli.polling import poll
from coordlock.cli.queues import Queue, Queues, kind_of
from coordlock.cli.table import print_table
from coordlock.cli.text import age, echo
from coordlock.client import Client
from coordlock.errors import AuthenticationFailed
from coordlock.locks.queue_view import QueueEntry

if TYPE_CHECKING:
    from coordlock.client.records import Record  # which loads all recipes

__all__ = ["ls"]


def ls(
    *,
    patterns: list[str],
    is_kept: bool,
    service: Service,
    follow: bool,
    as_json: bool,
) -> None:
    """List the locks that are in use.

    Elections, groups and barriers are listed, too. The column KIND says what each is, if known.
    HOLDER is the first holder, and QUEUED how long ago it asked. The service does not store when it
    was granted.
    WAITS is how long the oldest waiter has waited.

    With PATTERNs, the list has only names that match one of them: * stands for anything, ? for any
    character, [ab] for a or b. Quote them, or the shell takes them for files.

    With --kept, it lists the records that the service keeps under names, in use or not.
    """
    settings = service.settings()
    if is_kept:
        with connected(settings) as client:
            _ls_kept(client, patterns, follow=follow, as_json=as_json)
        return
    refused: dict[str, AuthenticationFailed] = {}

    def look() -> Queues:
        names = [name for name in client.admin.names() if _matches(name, patterns)]
        queues = [(name, _queue_of(client, name, refused)) for name in sorted(names)]
        return [(name, queue_view) for name, queue_view in queues if queue_view]

    def display(queues: Queues) -> None:
        if as_json:
            echo(json.dumps([_fields(name, queue, settings.scheme) for name, queue in queues]))
            return
        rows = [_row(name, queue, settings.scheme) for name, queue in queues]
        _print(rows, "lock in use", patterns)

    def essence(queues: Queues) -> object:
        return [_fields(name, queue, settings.scheme) for name, queue in queues]

    with connected(settings) as client:
        if follow:
            poll(look, display, essence=essence, redraw=not as_json)
        found = look()
    if refused and not found:
        raise next(iter(refused.values()))
    display(found)
    if refused:
        name, error = next(iter(refused.items()))
        others = f", nor {len(refused) - 1} more" if len(refused) > 1 else ""
        complain(f"{name!r} could not be read{others}: {error}")


def _ls_kept(client: Client, patterns: list[str], *, follow: bool, as_json: bool) -> None:
    def look() -> list[Record]:
        return filled(
            client, [one for one in client.admin.records() if _matches(one.name, patterns)]
        )

    def display(found: list[Record]) -> None:
        if as_json:
            echo(json.dumps([document_of(one) for one in found]))
        else:
            rows = [
                {"NAME": record.name, "KIND": record.kind, "STATE": state_of(record)}
                for record in found
            ]
            _print(rows, "record", patterns)

    if follow:
        poll(look, display, essence=lambda found: found, redraw=not as_json)
    display(look())


def _queue_of(client: Client, name: str, refused: dict[str, AuthenticationFailed]) -> Queue:
    """The queue, empty where it may not be read, which is noted: it may be another program's."""
    try:
        return client.admin.contenders(name)
    except AuthenticationFailed as error:
        refused[name] = error
        return ()


def _matches(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _print(rows: Sequence[Mapping[str, object]], what: str, patterns: list[str]) -> None:
    if rows:
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
        "TOKEN": holder and holder.token,
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
