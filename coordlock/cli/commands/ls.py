"""``coordlock ls``: the names in use, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from coordlock.cli.completion import complete_name, completed_by
from coordlock.cli.connection import Service, connected
from coordlock.cli.exits import complain
from coordlock.cli.kept import document_of, filled, print_kept
from coordlock.cli.options import look_options
from coordlock.cli.parser import Parser, UsageError
from coordlock.cli.polling import poll
from coordlock.cli.queues import Queues, kind_of
from coordlock.cli.table import print_table
from coordlock.cli.text import dashed, echo
from coordlock.client import Client
from coordlock.errors import AuthenticationFailed
from coordlock.locks.queue_view import QueueEntry

if TYPE_CHECKING:
    from coordlock.client.records import Record  # which loads all recipes

__all__ = ["ls", "parser"]


def parser() -> Parser:
    """Its parser."""
    parser = Parser(
        "coordlock ls", ls, usage="[OPTIONS] [PATTERN]...", example="coordlock ls 'nightly*'"
    )
    patterns = parser.argument("patterns", nargs="*", metavar="PATTERN")
    completed_by(patterns, complete_name)
    parser.flag("--tree", dest="is_tree", help="Show names with slashes as a tree.")
    parser.flag(
        "--kept",
        dest="is_kept",
        help="List what is kept: work queues, counters, latches, gates, barriers and more.",
    )
    look_options(parser)
    return parser.finished()


def ls(
    *,
    patterns: list[str],
    is_tree: bool,
    is_kept: bool,
    service: Service,
    follow: bool,
    as_json: bool,
) -> None:
    """List the locks that are in use.

    Elections, groups and barriers are listed, too. The column KIND says what each is, if known.

    With PATTERNs, the list has only names that match one of them: * stands for anything, ? for any
    character, [ab] for a or b. Quote them, or the shell takes them for files.

    With --kept, it lists the records that the service keeps under names, in use or not.
    """
    if is_tree and is_kept:
        raise UsageError("--tree and --kept exclude each other")
    settings = service.settings()
    if is_kept:
        with connected(settings) as client:
            _ls_kept(client, patterns, follow=follow, as_json=as_json)
        return
    refused: dict[str, AuthenticationFailed] = {}

    def look() -> Queues:
        names = [name for name in client.admin.names() if _matches(name, patterns)]
        names.sort(key=(lambda name: name.split("/")) if is_tree else str)
        queues = [(name, _queue_of(client, name, refused)) for name in names]
        return [(name, queue_view) for name, queue_view in queues if queue_view]

    def lines_of(queues: Queues) -> list[dict[str, Any]]:
        return [_line(name, queue_view, settings.scheme) for name, queue_view in queues]

    def display(queues: Queues) -> None:
        _print_lines(lines_of(queues), patterns, as_json=as_json, is_tree=is_tree)

    with connected(settings) as client:
        if follow:
            poll(look, display, essence=lines_of, redraw=not as_json)
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
        elif found:
            print_kept(found)
        elif patterns:
            complain(f"nothing that is kept matches {' or '.join(map(repr, patterns))}")
        else:
            complain("nothing is kept")

    if follow:
        poll(look, display, essence=lambda found: found, redraw=not as_json)
    display(look())


def _queue_of(
    client: Client, name: str, refused: dict[str, AuthenticationFailed]
) -> tuple[QueueEntry, ...]:
    """The queue, empty where it may not be read, which is noted: it may be another program's."""
    try:
        return client.admin.contenders(name)
    except AuthenticationFailed as error:
        refused[name] = error
        return ()


def _matches(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _print_lines(
    lines: list[dict[str, Any]], patterns: list[str], *, as_json: bool, is_tree: bool
) -> None:
    if as_json:
        echo(json.dumps(lines))
    elif lines:
        columns = ("NAME", "KIND", "HOLDERS", "WAITERS", "TOKEN", "HOLDER")
        rows = [[dashed(line[column.lower()]) for column in columns] for line in lines]
        if is_tree:
            rows = [row for name, row in _branches({str(row[0]): row for row in rows})]
        print_table(columns, rows, texts=("NAME", "HOLDER"))
    elif patterns:
        complain(f"no lock in use matches {' or '.join(map(repr, patterns))}")
    else:
        complain("no lock is in use")


def _branches(rows: dict[str, list[object]]) -> Iterator[tuple[str, list[object]]]:
    """The ``rows``, which are sorted, with their names as in a tree, and the nodes between."""
    shown: set[str] = set()
    for name, row in rows.items():
        steps = name.split("/")
        for depth in range(len(steps)):
            node = "/".join(steps[: depth + 1])
            if node not in shown:
                shown.add(node)
                rest = row[1:] if node == name else ["-"] * (len(row) - 1)
                yield node, ["  " * depth + (steps[depth] or "/"), *rest]


def _line(name: str, queue_view: tuple[QueueEntry, ...], scheme: str) -> dict[str, Any]:
    holding = [one for one in queue_view if one.holding]
    head = holding[0] if holding else None
    return {
        "name": name,
        "kind": kind_of(queue_view, scheme),
        "holders": len(holding),
        "waiters": len(queue_view) - len(holding),
        "token": head.token if head else None,
        "holder": str(head.owner) if head and head.owner else None,
    }
