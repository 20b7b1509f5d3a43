"""``coordlock ls`` and ``show``: looking at queues."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from coordlock.cli.completion import complete_name, completed_by
from coordlock.cli.connection import connected
from coordlock.cli.exits import complain
from coordlock.cli.kept import document_of, filled, print_kept, state_of
from coordlock.cli.kind import kind_of
from coordlock.cli.options import as_json as as_json_option
from coordlock.cli.options import name_argument, service_options, settings_of
from coordlock.cli.parser import Parser, UsageError
from coordlock.cli.table import print_table
from coordlock.cli.text import age, echo
from coordlock.cli.watch import watch
from coordlock.client import Client
from coordlock.errors import AuthenticationFailed, Unsupported
from coordlock.locks.queue_view import QueueMember
from coordlock.model.claim import Permit
from coordlock.model.names import check_name

if TYPE_CHECKING:
    from coordlock.client.kept import Kept  # which loads all recipes

__all__ = ["dashed", "ls", "ls_parser", "mode_of", "show", "show_parser"]

#: The ids of services' own sessions, which their tools ask for, are no longer than this.
_LONGEST: Final = 18


#: The names in use, each with its queue.
Queues = list[tuple[str, tuple[QueueMember, ...]]]


def _shared_options(parser: Parser) -> Parser:
    """Those of the commands that look."""
    service_options(parser)
    parser.flag("--watch", dest="is_watch", help="Look every second, until Ctrl-C.")
    as_json_option(parser)
    return parser.finished()


def ls_parser() -> Parser:
    """The parser of ``ls``."""
    parser = Parser(
        "coordlock ls", ls, usage="[OPTIONS] [PATTERN]...", example="coordlock ls 'nightly*'"
    )
    patterns = parser.argument("patterns", nargs="*", metavar="PATTERN")
    completed_by(patterns, complete_name)
    parser.flag("--tree", dest="is_tree", help="Show names with slashes as a tree.")
    parser.flag(
        "--kept",
        dest="is_kept",
        help="List what is kept: work queues, counters, latches, gates and barriers.",
    )
    return _shared_options(parser)


def ls(
    *,
    patterns: list[str],
    is_tree: bool,
    is_kept: bool,
    url: str | None,
    connect_timeout: float | None,
    is_watch: bool,
    as_json: bool,
) -> None:
    """List the locks that are in use.

    Elections, groups and barriers are such queues, too: the kind tells, where it is known.

    With PATTERNs, only names that match one of them: * stands for anything, ? for any character,
    [ab] for a or b. Quote them, or the shell takes them for files.

    With --kept, what the service keeps under names in their place, whether anybody uses it or not.
    """
    if is_tree and is_kept:
        raise UsageError("--tree and --kept exclude each other")
    settings = settings_of(url, connect_timeout=connect_timeout)
    if is_kept:
        with connected(settings) as client:
            _ls_kept(client, patterns, is_watch=is_watch, as_json=as_json)
        return
    refused: dict[str, AuthenticationFailed] = {}

    def look() -> Queues:
        names = [name for name in client.queues() if _matches(name, patterns)]
        names.sort(key=_steps if is_tree else str)
        queues = [(name, _queue_of(client, name, refused)) for name in names]
        return [(name, queue_view) for name, queue_view in queues if queue_view]

    def lines_of(queues: Queues) -> list[dict[str, Any]]:
        return [_line(name, queue_view, settings.scheme) for name, queue_view in queues]

    def display(queues: Queues) -> None:
        _print_lines(lines_of(queues), patterns, as_json=as_json, is_tree=is_tree)

    with connected(settings) as client:
        if is_watch:
            watch(look, display, essence=lines_of, redraw=not as_json)
        found = look()
    if refused and not found:
        raise next(iter(refused.values()))
    display(found)
    if refused:
        name, error = next(iter(refused.items()))
        others = f", nor {len(refused) - 1} more" if len(refused) > 1 else ""
        complain(f"{name!r} could not be read{others}: {error}")


def _ls_kept(client: Client, patterns: list[str], *, is_watch: bool, as_json: bool) -> None:
    def look() -> list[Kept]:
        return filled(client, [one for one in client.kept() if _matches(one.name, patterns)])

    def display(found: list[Kept]) -> None:
        if as_json:
            echo(json.dumps([document_of(one) for one in found]))
        elif found:
            print_kept(found)
        elif patterns:
            complain(f"nothing that is kept matches {' or '.join(map(repr, patterns))}")
        else:
            complain("nothing is kept")

    if is_watch:
        watch(look, display, essence=lambda found: found, redraw=not as_json)
    display(look())


def _queue_of(
    client: Client, name: str, refused: dict[str, AuthenticationFailed]
) -> tuple[QueueMember, ...]:
    """The queue, empty where it may not be read, which is noted: it may be another program's."""
    try:
        return client.contenders(name)
    except AuthenticationFailed as error:
        refused[name] = error
        return ()


def show_parser() -> Parser:
    """The parser of ``show``."""
    parser = Parser(
        "coordlock show",
        show,
        usage="[OPTIONS] NAME",
        example="coordlock show nightly --watch",
    )
    name_argument(parser)
    parser.flag("--tree", dest="is_tree", help="Show all queues above and below NAME, too.")
    return _shared_options(parser)


def show(
    *,
    name: str,
    is_tree: bool,
    url: str | None,
    connect_timeout: float | None,
    is_watch: bool,
    as_json: bool,
) -> None:
    """Show the queue of the lock NAME: its holders and its waiters.

    Likewise of an election, with its candidates, a group, with its members, and a barrier. And what
    is kept under NAME: a work queue, a counter, a latch, a gate, a barrier. With --tree, NAME is a
    path in a tree of locks.
    """
    check_name(name)
    settings = settings_of(url, connect_timeout=connect_timeout)

    def look() -> _Seen:
        if not is_tree:
            return _Seen([(name, client.contenders(name))], _kept_of(client, name))
        names = sorted((one for one in client.queues() if _is_near(one, name)), key=_steps)
        queues = [(one, client.contenders(one)) for one in names]
        return _Seen([(one, queue_view) for one, queue_view in queues if queue_view])

    def display(seen: _Seen) -> None:
        if is_tree:
            _print_tree(name, seen.queues, as_json=as_json)
        else:
            kind = kind_of(seen.queues[0][1], settings.scheme)
            _print_queue(name, seen.queues[0][1], kind, seen.kept, as_json=as_json)

    def essence(seen: _Seen) -> object:
        members = [dataclasses.replace(one, age=None) for _, queue in seen.queues for one in queue]
        return members, seen.kept

    with connected(settings) as client:
        if is_watch:
            watch(look, display, essence=essence, redraw=not as_json)
        found = look()
    display(found)


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What one look shows of a name, or of a tree of them."""

    queues: Queues
    kept: list[Kept] = dataclasses.field(default_factory=list)


def _kept_of(client: Client, name: str) -> list[Kept]:
    """What is kept under ``name``; nothing where that can't be, or may not be read."""
    with suppress(Unsupported, AuthenticationFailed):
        return filled(client, client.kept(name))
    return []


def _matches(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _steps(name: str) -> list[str]:
    """From the top of a tree to the node of that name."""
    return name.split("/")


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
        steps = _steps(name)
        for depth in range(len(steps)):
            node = "/".join(steps[: depth + 1])
            if node not in shown:
                shown.add(node)
                rest = row[1:] if node == name else ["-"] * (len(row) - 1)
                yield node, ["  " * depth + (steps[depth] or "/"), *rest]


#: What those do that hold their place in a queue of a kind.
_HOLDS: Final[Mapping[str | None, str]] = {
    "election": "leads",
    "group": "is there",
    "barrier": "is there",
    "double barrier": "is there",
}


def _print_queue(
    name: str,
    queue_view: tuple[QueueMember, ...],
    kind: str | None,
    kept: list[Kept],
    *,
    as_json: bool,
) -> None:
    if as_json:
        document = {
            "name": name,
            "kind": kind,
            "contenders": [_document(one) for one in queue_view],
            "kept": [{"kind": one.kind, "state": one.state} for one in kept],
        }
        echo(json.dumps(document))
        return
    if queue_view:
        has_values = any(map(_value, queue_view))
        print_table(
            ("", "STATE", "MODE", "TOKEN", "AGE", "OWNER", *["VALUE"] * has_values, "SESSION"),
            [
                [
                    one.position,
                    _HOLDS.get(kind, "holds") if one.holding else "waits",
                    mode_of(one),
                    dashed(one.token),
                    age(one.age),
                    dashed(one.owner),
                    *[dashed(_value(one))] * has_values,
                    dashed(_short(one.session)),
                ]
                for one in queue_view
            ],
            texts=("OWNER", "VALUE"),
            bold=1,
        )
    elif not kept:
        complain(f"nobody holds {name!r} or waits for it")
    for one in kept:
        echo(f"{one.kind}: {state_of(one)}")


def _is_near(name: str, path: str) -> bool:
    """Whether the node ``name`` is the one at ``path``, or above or below it."""
    return f"{name}/".startswith(f"{path}/") or f"{path}/".startswith(f"{name}/")


def _print_tree(path: str, queues: Queues, *, as_json: bool) -> None:
    if as_json:
        documents = [
            {"name": name, "contenders": [_document(one) for one in queue_view]}
            for name, queue_view in queues
        ]
        echo(json.dumps({"path": path, "queues": documents}))
    elif queues:
        print_table(
            ("NAME", "STATE", "MODE", "TOKEN", "AGE", "OWNER"),
            [
                [
                    "  " * (len(_steps(name)) - 1) + _steps(name)[-1],
                    "holds" if one.holding else "waits",
                    mode_of(one),
                    dashed(one.token),
                    age(one.age),
                    dashed(one.owner),
                ]
                for name, queue_view in queues
                for one in queue_view
            ],
            texts=("NAME", "OWNER"),
            bold=1,
        )
    else:
        complain(f"nobody holds {path!r}, or anything above or below it")


def _line(name: str, queue_view: tuple[QueueMember, ...], scheme: str) -> dict[str, Any]:
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


def _document(one: QueueMember) -> dict[str, Any]:
    return {
        "position": one.position,
        "holding": one.holding,
        "mode": None if isinstance(one.claim, Permit) else one.claim.name,
        "permits": one.claim.of if isinstance(one.claim, Permit) else None,
        "converting_to": None if one.converting_to is None else one.converting_to.name,
        "token": one.token,
        "owner": dataclasses.asdict(one.owner) if one.owner else None,
        "age": one.age,
        "value": one.value.decode("utf-8", "backslashreplace"),
        "session": one.session,
        "key": one.contender.key,
    }


def mode_of(one: QueueMember) -> str:
    """What it holds or waits for."""
    if isinstance(one.claim, Permit):
        return f"1 of {one.claim.of}"
    target = one.converting_to
    return one.claim.name if target is None else f"{one.claim.name} to {target.name}"


def _value(one: QueueMember) -> str:
    """What it publishes beside who it is."""
    if one.owner is None or not one.owner.host:
        return ""  # it is known by what it publishes
    return one.value.decode("utf-8", "backslashreplace")


def _short(session: str) -> str:
    """The beginning of an id that is long and random, as those of ``local://`` are."""
    return session if len(session) <= _LONGEST else f"{session[:8]}..."


def dashed(value: object) -> object:
    """``value``, or a dash where there is none."""
    return "-" if value is None or value == "" else value
