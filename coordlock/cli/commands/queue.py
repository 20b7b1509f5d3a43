"""Put items into work queues, look at them, and work on them.

Each item is done at least once, by one worker at a time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from coordlock.cli.confirm import confirm
from coordlock.cli.connection import Service
from coordlock.cli.data import expect_input, given, in_json, read_all, shortened
from coordlock.cli.exits import Exit, complain
from coordlock.cli.kept import counted
from coordlock.cli.parser import Refused, UsageError
from coordlock.cli.table import print_table
from coordlock.cli.text import age, echo, listed
from coordlock.errors import WorkQueueFull
from coordlock.work.view import ItemView

__all__ = ["evict", "ls", "purge", "put", "remove", "retry"]

#: How many items are put before their ids are printed.
_AT_ONCE: Final = 1000


def put(
    *,
    name: str,
    data: list[str],
    lines: bool,
    delay: float,
    max_depth: int | None,
    service: Service,
) -> None:
    """Put items at the end of the work queue NAME.

    Each DATA is an item; '' is an empty one. Without DATA, all of stdin is one item, and may not
    be empty. Prints the ids.
    """
    if lines and data:
        raise UsageError("--lines reads items from stdin: leave DATA out")
    with service.connected() as client:
        queue = client.work_queue(name, max_depth=max_depth)
        items = [given(one) for one in data]
        if lines:
            expect_input("items")
            items = [line.rstrip(b"\r\n") for line in sys.stdin.buffer]
        elif not data:
            items = [read_all("item")]
        # With a limit one by one, so that the ids of those that were put are printed.
        step = _AT_ONCE if max_depth is None else 1
        try:
            for start in range(0, len(items), step):
                echo("\n".join(queue.put_many(items[start : start + step], delay=delay)))
        except WorkQueueFull as full:
            complain(full)
            raise Refused(Exit.NOT_ACQUIRED) from None
        except ValueError as error:
            raise UsageError(str(error)) from None


def ls(
    *,
    name: str,
    dead: bool,
    limit: int,
    service: Service,
    as_json: bool,
) -> None:
    """List the items of the work queue NAME.

    Lists first the items at work, with their workers and for how long, then the waiting ones in
    order, then the delayed ones. `coordlock ls --kept` lists the work queues.
    """
    with service.connected() as client:
        queue = client.work_queue(name)
        stats = queue.stats()
        items = (queue.dead if dead else queue.items)(limit)
    if as_json:
        echo(json.dumps({"name": name, **asdict(stats), "items": list(map(_document, items))}))
        return
    if items:
        print_table(list(map(_row, items)))
    complain(f"{name!r}: {counted(asdict(stats))}")


def _row(item: ItemView) -> dict[str, object]:
    now = time.time()
    return {
        "ID": item.id,
        "STATE": item.state,
        "DELIVERIES": item.deliveries,
        "FAILURES": item.failures,
        "AGE": age(max(0.0, now - item.put_at)),
        "FOR": age(None if item.since is None else max(0.0, now - item.since)),
        "REASON" if item.state == "dead" else "WORKER": item.reason or item.worker,
        "DATA": shortened(item.data),
    }


def _document(item: ItemView) -> dict[str, object]:
    """``item`` for JSON."""
    return {**asdict(item), **in_json(item.data)}


def retry(*, name: str, ids: list[str], is_all: bool, service: Service) -> int:
    """Let dead items of the work queue NAME be taken again.

    They are taken before new items, as if they had never been taken. Prints their ids. The exit
    status is 1 if an ID is not of a dead item.
    """
    if is_all == bool(ids):
        raise UsageError("give an ID, or --all")
    status = Exit.OK
    with service.connected() as client:
        queue = client.work_queue(name)
        for id in [one.id for one in queue.dead(10**9)] if is_all else ids:
            try:
                queue.retry(id)
            except LookupError as error:
                complain(error)
                status = Exit.FAILED
            else:
                echo(id)
    return status


def evict(*, name: str, ids: list[str], yes: bool, service: Service) -> int:
    """Take items of the work queue NAME from their workers.

    Each is ready again at once, without counting a failure. Its worker learns that it lost the
    item, but may still be at work. The exit status is 1 if no worker has an item.
    """
    with service.connected() as client:
        confirm(f"Take {listed(ids)} from the workers of {name!r}?", yes=yes)
        return _each(ids, client.work_queue(name).evict, "evicted", "is not with a worker")


def remove(*, name: str, ids: list[str], yes: bool, service: Service) -> int:
    """Remove items of the work queue NAME that nobody works on.

    The items may be waiting, delayed or dead. The exit status is 1 if no item has an ID, or a
    worker has the item.
    """
    with service.connected() as client:
        confirm(f"Remove {listed(ids)} from {name!r}?", yes=yes)
        removal = client.work_queue(name).remove
        return _each(ids, removal, "removed", "is not there, or a worker has it")


def _each(ids: list[str], do: Callable[[str], bool], done: str, otherwise: str) -> int:
    """Do it to each item, and say what came of it; the exit status."""
    status = Exit.OK
    for id in dict.fromkeys(ids):
        if do(id):
            echo(f"{done}: {id}")
        else:
            complain(f"item {id} {otherwise}")
            status = Exit.FAILED
    return status


def purge(*, name: str, yes: bool, service: Service) -> None:
    """Remove all items of the work queue NAME that nobody works on.

    The items may be waiting, delayed or dead.
    """
    with service.connected() as client:
        queue = client.work_queue(name)
        question = f"{name!r}: {counted(asdict(queue.stats()))}. Remove all but the taken ones?"
        confirm(question, yes=yes)
        echo(f"removed: {queue.purge()}")
