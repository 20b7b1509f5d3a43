"""``coordlock queue``: items that some put and others do."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, fields
from typing import Final

from coordlock.cli.completion import complete_work_queue, completed_by
from coordlock.cli.confirm import check_terminal, confirm
from coordlock.cli.connection import Service
from coordlock.cli.data import expect_input, given, in_json, read_all, shortened
from coordlock.cli.exits import Exit, complain
from coordlock.cli.kept import counted, work_queues
from coordlock.cli.options import json_option, seconds, service_options
from coordlock.cli.parser import Group, Parser, Refused, UsageError, whole
from coordlock.cli.table import print_table
from coordlock.cli.text import age, dashed, echo, listed
from coordlock.errors import WorkQueueFull
from coordlock.model.names import check_name
from coordlock.work.view import ItemView, WorkQueueStats

__all__ = ["parser"]

_COMMANDS: Final = {
    "put": "Put items at the end of the work queue NAME.",
    "ls": "List the work queues, or the items of the work queue NAME.",
    "work": "Run COMMAND for each item of the work queue NAME.",
    "retry": "Put dead items of the work queue NAME again.",
    "remove": "Remove items of the work queue NAME that nobody works on.",
    "purge": "Remove all items of the work queue NAME that nobody works on.",
}
#: How many items `ls` shows by default.
_LISTED: Final = 100
#: How many items are put before their ids are printed.
_AT_ONCE: Final = 1000


def parser() -> Group:
    """The parser of the group."""
    group = Group(
        "coordlock queue",
        _queue,
        usage="COMMAND [ARGS]...",
        commands=_COMMANDS,
        load=_load,
        example="coordlock queue work mails -- ./send.sh",
    )
    service_options(group)
    return group.finished()


def _load(name: str) -> Parser:
    match name:
        case "put":
            return _put_parser()
        case "work":
            from coordlock.cli.commands import queue_work

            return queue_work.parser()
        case "ls":
            return _ls_parser()
        case "remove":
            return _remove_parser()
        case "purge":
            return _purge_parser()
        case _:
            return _retry_parser()


def _queue(*, service: Service) -> int:
    """Put and take items of work queues.

    Each item is done at least once, by one worker at a time.
    """
    echo(parser().format_help(), end="", err=True)
    return Exit.USAGE


def _name_argument(parser: Parser, nargs: str | None = None) -> None:
    """The name of a work queue."""
    completed_by(parser.argument("name", metavar="NAME", nargs=nargs), complete_work_queue)


def _put_parser() -> Parser:
    parser = Parser(
        "coordlock queue put",
        _put,
        usage="NAME [OPTIONS] [DATA]...",
        example="coordlock queue put mails 'to: ann' --delay 5m",
    )
    _name_argument(parser)
    parser.argument("data", metavar="DATA", nargs="*", default=[])
    parser.flag("--lines", help="Each line of stdin is an item.")
    parser.option(
        "--delay",
        type=seconds,
        metavar="DURATION",
        default=0.0,
        help="Let nobody take the items before this time has passed.",
    )
    parser.option(
        "--max-depth",
        type=whole(1, 2**31),
        metavar="N",
        help="Put nothing while N items wait; the exit status is 75 then.",
    )
    service_options(parser)
    json_option(parser)
    return parser.finished()


def _put(
    *,
    name: str,
    data: list[str],
    lines: bool,
    delay: float,
    max_depth: int | None,
    service: Service,
    as_json: bool,
) -> None:
    """Put items at the end of the work queue NAME.

    Each DATA is an item; '' is an empty one. Without DATA, all of stdin is one item, and may not
    be empty. Prints the ids.
    """
    check_name(name)
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
        ids: list[str] = []
        # With a limit one by one, so that the ids of those that were put are printed.
        step = _AT_ONCE if max_depth is None else 1
        try:
            for start in range(0, len(items), step):
                made = queue.put_many(items[start : start + step], delay=delay)
                ids += made
                if not as_json:
                    echo("\n".join(made))
        except WorkQueueFull as full:
            complain(full)
            raise Refused(Exit.NOT_ACQUIRED) from None
        except ValueError as error:
            raise UsageError(str(error)) from None
        finally:
            if as_json:
                echo(json.dumps(ids))


def _ls_parser() -> Parser:
    parser = Parser(
        "coordlock queue ls",
        _ls,
        usage="[OPTIONS] [NAME]",
        example="coordlock queue ls mails --dead",
    )
    _name_argument(parser, "?")
    parser.flag("--dead", help="List the dead items: those that failed too often.")
    parser.option(
        "--limit",
        type=whole(1, 10**6),
        metavar="N",
        help=f"List the first N items. Default: {_LISTED}.",
    )
    service_options(parser)
    json_option(parser)
    return parser.finished()


def _ls(
    *,
    name: str | None,
    dead: bool,
    limit: int | None,
    service: Service,
    as_json: bool,
) -> None:
    """List the work queues, or the items of the work queue NAME.

    Lists first the items at work, with their workers and for how long, then the waiting ones in
    order, then the delayed ones.
    """
    if name is None:
        if dead or limit is not None:
            option = "--dead" if dead else "--limit"
            raise UsageError(f"{option} lists items: give the NAME of their queue")
        _list_queues(service, as_json=as_json)
        return
    check_name(name)
    with service.connected() as client:
        queue = client.work_queue(name)
        stats = queue.stats()
        items = (queue.dead if dead else queue.items)(limit or _LISTED)
    if as_json:
        echo(json.dumps({"name": name, **asdict(stats), "items": list(map(_document, items))}))
        return
    if items:
        who = "REASON" if dead else "WORKER"
        columns = ("ID", "STATE", "DELIVERIES", "FAILURES", "AGE", "FOR", who, "DATA")
        print_table(columns, list(map(_row, items)), texts=("WORKER", "DATA", "REASON"))
    complain(f"{name!r}: {counted(asdict(stats))}")


def _list_queues(service: Service, *, as_json: bool) -> None:
    with service.connected() as client:
        nothing = dict.fromkeys(field.name for field in fields(WorkQueueStats))
        found = [{"name": one.name, **(one.state or nothing)} for one in work_queues(client)]
    if as_json:
        echo(json.dumps(found))
    elif found:
        columns = [name.upper() for name in found[0]]
        print_table(columns, [list(map(dashed, one.values())) for one in found], texts=("NAME",))
    else:
        complain("there is no work queue")


def _row(item: ItemView) -> tuple[object, ...]:
    now = time.time()
    old = age(max(0.0, now - item.put_at))
    since = None if item.since is None else age(max(0.0, now - item.since))
    who = item.reason or item.worker or None
    data = shortened(item.data)
    return (
        item.id,
        item.state,
        item.deliveries,
        item.failures,
        old,
        dashed(since),
        dashed(who),
        data,
    )


def _document(item: ItemView) -> dict[str, object]:
    """``item`` for JSON."""
    return {**asdict(item), **in_json(item.data)}


def _retry_parser() -> Parser:
    parser = Parser(
        "coordlock queue retry",
        _retry,
        usage="NAME [OPTIONS] [ID]...",
        example="coordlock queue retry mails 17",
    )
    _name_argument(parser)
    parser.argument("ids", metavar="ID", nargs="*", default=[])
    parser.flag("--all", dest="is_all", help="Put all dead items again.")
    service_options(parser)
    json_option(parser)
    return parser.finished()


def _retry(
    *,
    name: str,
    ids: list[str],
    is_all: bool,
    service: Service,
    as_json: bool,
) -> int:
    """Put dead items of the work queue NAME again.

    Each becomes a new item at the end of the queue. Prints the new ids. The exit status is 1 if an
    ID is not of a dead item.
    """
    check_name(name)
    if is_all == bool(ids):
        raise UsageError("give an ID, or --all")
    again: dict[str, str | None] = {}
    with service.connected() as client:
        queue = client.work_queue(name)
        for id in [one.id for one in queue.dead(10**9)] if is_all else ids:
            try:
                again[id] = queue.retry(id)
            except ValueError as error:
                raise UsageError(str(error)) from None
            except LookupError as error:
                again[id] = None
                complain(error)
            else:
                if not as_json:
                    echo(again[id])
    if as_json:
        echo(json.dumps(again))
    return Exit.FAILED if None in again.values() else Exit.OK


def _remove_parser() -> Parser:
    parser = Parser(
        "coordlock queue remove",
        _remove,
        usage="NAME [OPTIONS] ID...",
        example="coordlock queue remove mails 17",
    )
    _name_argument(parser)
    parser.argument("ids", metavar="ID", nargs="*", default=[])
    parser.flag("--yes", help="Don't ask.")
    service_options(parser)
    return parser.finished()


def _remove(*, name: str, ids: list[str], yes: bool, service: Service) -> int:
    """Remove items of the work queue NAME that nobody works on.

    The items may be waiting, delayed or dead. The exit status is 1 if no item has an ID, or a
    worker has the item.
    """
    check_name(name)
    if not ids:
        raise UsageError("give an ID")
    if not yes:
        check_terminal()
    with service.connected() as client:
        queue = client.work_queue(name)
        if not yes:
            confirm(f"Remove {listed(ids)} from {name!r}?")
        status = Exit.OK
        for id in ids:
            try:
                was_there = queue.remove(id)
            except ValueError as error:
                raise UsageError(str(error)) from None
            if was_there:
                echo(f"removed: {id}")
            else:
                complain(f"{name!r} has no item {id}, or a worker has it")
                status = Exit.FAILED
    return status


def _purge_parser() -> Parser:
    parser = Parser(
        "coordlock queue purge", _purge, usage="NAME [OPTIONS]", example="coordlock queue purge old"
    )
    _name_argument(parser)
    parser.flag("--yes", help="Don't ask.")
    service_options(parser)
    return parser.finished()


def _purge(*, name: str, yes: bool, service: Service) -> None:
    """Remove all items of the work queue NAME that nobody works on.

    The items may be waiting, delayed or dead.
    """
    check_name(name)
    if not yes:
        check_terminal()
    with service.connected() as client:
        queue = client.work_queue(name)
        if not yes:
            confirm(f"{name!r}: {counted(asdict(queue.stats()))}. Remove all but the taken ones?")
        echo(f"removed: {queue.purge()}")
