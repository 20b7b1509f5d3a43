"""``coordlock ls``, ``show`` and ``break``: looking at queues, and removing what is stuck."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from coordlock.cli.completion import complete_name, completed_by
from coordlock.cli.connection import connected
from coordlock.cli.exits import Exit, complain
from coordlock.cli.options import as_json as as_json_option
from coordlock.cli.options import name_argument, service_options, settings_of
from coordlock.cli.parser import Aborted, Parser, UsageError, whole
from coordlock.cli.signals import Interrupted
from coordlock.cli.table import print_table
from coordlock.cli.text import age, echo, listed, printable
from coordlock.cli.watch import watch
from coordlock.client import Client
from coordlock.errors import AuthenticationFailed
from coordlock.model.claim import Permit
from coordlock.model.names import check_name
from coordlock.queue_view import QueueMember

__all__ = ["break_", "break_parser", "ls", "ls_parser", "show", "show_parser"]

#: The ids of services' own sessions, which their tools ask for, are no longer than this.
_LONGEST: Final = 18
#: What a person may answer.
_ANSWERS: Final = {"y": True, "yes": True, "n": False, "no": False, "": False}


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
    return _shared_options(parser)


def ls(
    *,
    patterns: list[str],
    is_tree: bool,
    url: str | None,
    connect_timeout: float | None,
    is_watch: bool,
    as_json: bool,
) -> None:
    """List the locks that are in use.

    With PATTERNs, only names that match one of them: * stands for anything, ? for any character,
    [ab] for a or b. Quote them, or the shell takes them for files.
    """
    refused: dict[str, AuthenticationFailed] = {}

    def look() -> Queues:
        names = [name for name in client.queues() if _matches(name, patterns)]
        names.sort(key=_steps if is_tree else str)
        queues = [(name, _queue_of(client, name, refused)) for name in names]
        return [(name, queue_view) for name, queue_view in queues if queue_view]

    def display(queues: Queues) -> None:
        _print_queues(queues, patterns, as_json=as_json, is_tree=is_tree)

    def essence(queues: Queues) -> object:
        return [_line(name, queue_view) for name, queue_view in queues]

    with connected(settings_of(url, connect_timeout=connect_timeout)) as client:
        if is_watch:
            watch(look, display, essence=essence, redraw=not as_json)
        found = look()
    if refused and not found:
        raise next(iter(refused.values()))
    display(found)
    if refused:
        name, error = next(iter(refused.items()))
        others = f", nor {len(refused) - 1} more" if len(refused) > 1 else ""
        complain(f"{name!r} could not be read{others}: {error}")


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

    With --tree, NAME is a path in a tree of locks.
    """
    check_name(name)

    def look() -> Queues:
        if not is_tree:
            return [(name, client.contenders(name))]
        names = sorted((one for one in client.queues() if _is_near(one, name)), key=_steps)
        queues = [(one, client.contenders(one)) for one in names]
        return [(one, queue_view) for one, queue_view in queues if queue_view]

    def display(queues: Queues) -> None:
        if is_tree:
            _print_tree(name, queues, as_json=as_json)
        else:
            _print_queue(name, queues[0][1], as_json=as_json)

    def essence(queues: Queues) -> object:
        return [dataclasses.replace(one, age=None) for _, queue in queues for one in queue]

    with connected(settings_of(url, connect_timeout=connect_timeout)) as client:
        if is_watch:
            watch(look, display, essence=essence, redraw=not as_json)
        found = look()
    display(found)


def break_parser() -> Parser:
    """The parser of ``break``."""
    parser = Parser(
        "coordlock break",
        break_,
        usage="[OPTIONS] NAME",
        example="coordlock break nightly --token 33",
    )
    name_argument(parser)
    parser.option(
        "--token",
        type=whole(1, 2**63 - 1),
        metavar="N",
        help="Evict the contender with this token, holding or not.",
    )
    parser.flag("--all", dest="everybody", help="Evict all, from the end: no waiter is granted.")
    parser.flag("--yes", help="Don't ask.")
    service_options(parser)
    return parser.finished()


def break_(
    *,
    name: str,
    token: int | None,
    everybody: bool,
    yes: bool,
    url: str | None,
    connect_timeout: float | None,
) -> int:
    """Evict the holder of the lock NAME from its queue.

    It is told that it lost the lock, but nothing stops it: make sure that it is no longer at
    work, or that what it works on refuses its token. The exit status is 1 if there was nobody to
    evict.
    """
    check_name(name)
    if token is not None and everybody:
        raise UsageError("--token and --all exclude each other")
    if not yes and not sys.stdin.isatty():
        raise UsageError("stdin is no terminal, so nobody can be asked: add --yes")
    with connected(settings_of(url, connect_timeout=connect_timeout)) as client:
        queue_view = client.contenders(name)
        chosen = _choose(queue_view, token, everybody)
        if not chosen:
            complain(_nobody(name, queue_view, token))
            return Exit.FAILED
        if not yes:
            for one in chosen:
                echo(f"  {_describe(one)}", err=True)
            echo("Nothing stops them: they may still be at work.", err=True)
            _confirm(f"Evict from {name!r}?")
        if everybody:
            evicted = client.evict_all(name)
        else:
            evicted = tuple(one for one in chosen if client.evict(one))
    there = {one.contender.key for one in evicted}
    for one in chosen:
        if one.contender.key not in there:
            echo(f"already gone: {_describe(one)}")
    for one in evicted:
        echo(f"evicted: {_describe(one)}")
    return Exit.OK if evicted else Exit.FAILED


def _confirm(question: str) -> None:
    """Raises `Aborted` for a no."""
    is_sure: bool | None = None
    try:
        while is_sure is None:
            echo(f"{question} [y/N]: ", end="", err=True)
            if not (answer := sys.stdin.readline()):
                raise Aborted
            is_sure = _ANSWERS.get(answer.strip().lower())
    except (Aborted, Interrupted):
        echo(err=True)  # what comes next is no answer
        raise
    if not is_sure:
        raise Aborted


def _choose(
    queue_view: tuple[QueueMember, ...], token: int | None, everybody: bool
) -> tuple[QueueMember, ...]:
    if everybody:
        return queue_view
    if token is not None:
        return tuple(one for one in queue_view if one.token == token)
    holding = tuple(one for one in queue_view if one.holding)
    if len(holding) > 1:
        tokens = ", ".join(str(one.token) for one in holding)
        raise UsageError(f"{len(holding)} hold it: choose --token ({tokens}) or --all")
    return holding


def _nobody(name: str, queue_view: tuple[QueueMember, ...], token: int | None) -> str:
    """Why there is nobody to evict."""
    if token is None or not queue_view:
        return f"nobody to evict from {name!r}: nobody holds it"
    holders = [str(one.contender) for one in queue_view if one.holding]
    waiting = [str(one.contender) for one in queue_view if not one.holding]
    held = f"held by {listed(holders)}" if holders else "nobody holds it"
    waited = f"; waiting: {listed(waiting)}" if waiting else ""
    return f"nobody in the queue of {name!r} has the token {token}: {held}{waited}"


def _matches(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _steps(name: str) -> list[str]:
    """From the top of a tree to the node of that name."""
    return name.split("/")


def _print_queues(queues: Queues, patterns: list[str], *, as_json: bool, is_tree: bool) -> None:
    lines = [_line(name, queue_view) for name, queue_view in queues]
    if as_json:
        echo(json.dumps(lines))
    elif lines:
        columns = ("NAME", "HOLDERS", "WAITERS", "TOKEN", "HOLDER")
        rows = [[_dash(line[column.lower()]) for column in columns] for line in lines]
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


def _print_queue(name: str, queue_view: tuple[QueueMember, ...], *, as_json: bool) -> None:
    if as_json:
        document = {"name": name, "contenders": [_document(one) for one in queue_view]}
        echo(json.dumps(document))
    elif queue_view:
        print_table(
            ("", "STATE", "MODE", "TOKEN", "AGE", "OWNER", "SESSION"),
            [
                [
                    one.position,
                    "holds" if one.holding else "waits",
                    _mode(one),
                    _dash(one.token),
                    age(one.age),
                    _dash(one.owner),
                    _dash(_short(one.session)),
                ]
                for one in queue_view
            ],
            texts=("OWNER",),
            bold=1,
        )
    else:
        complain(f"nobody holds {name!r} or waits for it")


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
                    _mode(one),
                    _dash(one.token),
                    age(one.age),
                    _dash(one.owner),
                ]
                for name, queue_view in queues
                for one in queue_view
            ],
            texts=("NAME", "OWNER"),
            bold=1,
        )
    else:
        complain(f"nobody holds {path!r}, or anything above or below it")


def _line(name: str, queue_view: tuple[QueueMember, ...]) -> dict[str, Any]:
    holding = [one for one in queue_view if one.holding]
    head = holding[0] if holding else None
    return {
        "name": name,
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
        "session": one.session,
        "key": one.contender.key,
    }


def _mode(one: QueueMember) -> str:
    if isinstance(one.claim, Permit):
        return f"1 of {one.claim.of}"
    target = one.converting_to
    return one.claim.name if target is None else f"{one.claim.name} to {target.name}"


def _short(session: str) -> str:
    """The beginning of an id that is long and random, as those of ``local://`` are."""
    return session if len(session) <= _LONGEST else f"{session[:8]}..."


def _describe(one: QueueMember) -> str:
    state = "holds" if one.holding else "waits"
    owner = printable(str(one.owner or one.contender.key))
    return f"{owner}: {state}, {_mode(one)}, token {_dash(one.token)}, for {age(one.age)}"


def _dash(value: object) -> object:
    return "-" if value is None or value == "" else value
