"""``coordlock show``: who holds a lock, and who waits for it; or those of a tree."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from coordlock.cli.connection import Service, connected
from coordlock.cli.exits import complain
from coordlock.cli.kept import filled, state_of
from coordlock.cli.options import look_options, name_argument
from coordlock.cli.parser import Parser
from coordlock.cli.polling import poll
from coordlock.cli.queues import Queues, kind_of, mode_of
from coordlock.cli.table import print_table
from coordlock.cli.text import age, dashed, echo
from coordlock.client import Client
from coordlock.errors import AuthenticationFailed, Unsupported
from coordlock.locks.queue_view import QueueEntry
from coordlock.model.claim import Permit
from coordlock.model.names import check_name

if TYPE_CHECKING:
    from coordlock.client.records import Record  # which loads all recipes

__all__ = ["parser", "show"]

#: The ids of services' own sessions, which their tools ask for, are no longer than this.
_LONGEST: Final = 18


def parser() -> Parser:
    """Its parser."""
    parser = Parser(
        "coordlock show",
        show,
        usage="[OPTIONS] NAME",
        example="coordlock show nightly --follow",
    )
    name_argument(parser)
    parser.flag("--tree", dest="is_tree", help="Show the locks above and below NAME, too.")
    look_options(parser)
    return parser.finished()


def show(
    *,
    name: str,
    is_tree: bool,
    service: Service,
    follow: bool,
    as_json: bool,
) -> None:
    """Show who holds the lock NAME, and who waits for it.

    NAME may also be an election with its candidates, a group with its members, or a barrier.
    Records under NAME, such as a counter or a work queue, are shown below. With --tree, NAME is a
    path in a tree of locks.

    QUEUED is how long ago each asked for it. A holder that had to wait has held it for less.
    """
    check_name(name)
    settings = service.settings()

    def look() -> _Seen:
        if not is_tree:
            return _Seen([(name, client.admin.contenders(name))], _kept_of(client, name))
        names = [one for one in client.admin.names() if _is_near(one, name)]
        names.sort(key=lambda one: one.split("/"))
        queues = [(one, client.admin.contenders(one)) for one in names]
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
        if follow:
            poll(look, display, essence=essence, redraw=not as_json)
        found = look()
    display(found)


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What one look shows of a name, or of a tree of them."""

    queues: Queues
    kept: list[Record] = dataclasses.field(default_factory=list)


def _kept_of(client: Client, name: str) -> list[Record]:
    """What is kept under ``name``; nothing where that can't be, or may not be read."""
    with suppress(Unsupported, AuthenticationFailed):
        return filled(client, client.admin.records(name))
    return []


#: What those do that hold their place in a queue of a kind.
_HOLDS: Final[Mapping[str | None, str]] = {
    "election": "leads",
    "group": "is there",
    "barrier": "is there",
    "double barrier": "is there",
}


def _print_queue(
    name: str,
    queue_view: tuple[QueueEntry, ...],
    kind: str | None,
    kept: list[Record],
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
            ("", "STATE", "MODE", "TOKEN", "QUEUED", "OWNER", *["VALUE"] * has_values, "SESSION"),
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
            texts=("OWNER",),
            data=("VALUE",),
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
        echo(json.dumps({"path": path, "locks": documents}))
    elif queues:
        print_table(
            ("NAME", "STATE", "MODE", "TOKEN", "QUEUED", "OWNER"),
            [
                [
                    "  " * (len(name.split("/")) - 1) + name.split("/")[-1],
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


def _document(one: QueueEntry) -> dict[str, Any]:
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


def _value(one: QueueEntry) -> str:
    """What it publishes beside who it is."""
    if one.owner is None or not one.owner.host:
        return ""  # it is known by what it publishes
    return one.value.decode("utf-8", "backslashreplace")


def _short(session: str) -> str:
    """The beginning of an id that is long and random, as those of ``local://`` are."""
    return session if len(session) <= _LONGEST else f"{session[:8]}..."
