"""``coordlock group``: being in a group, and who is."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from coordlock.cli.completion import complete_group
from coordlock.cli.connection import Service
from coordlock.cli.data import text_of
from coordlock.cli.exits import Exit, complain
from coordlock.cli.options import follow_option, json_option, name_argument, service_options
from coordlock.cli.parser import Group, Parser
from coordlock.cli.table import print_table
from coordlock.cli.text import dashed, echo
from coordlock.client import Client
from coordlock.model.names import check_name
from coordlock.recipes.group import GroupView, Member

__all__ = ["parser"]

_COMMANDS: Final = {
    "join": "Be a member of the group NAME while COMMAND runs.",
    "members": "Show who is in the group NAME.",
}


def parser() -> Group:
    """The parser of the group."""
    group = Group(
        "coordlock group",
        _group,
        usage="COMMAND [ARGS]...",
        commands=_COMMANDS,
        load=_load,
        example="coordlock group join web --value 10.0.0.5:8080 -- ./serve",
    )
    service_options(group)
    return group.finished()


def _load(name: str) -> Parser:
    if name == "join":
        from coordlock.cli.commands import group_join

        return group_join.parser()
    return _members_parser()


def _group(*, service: Service) -> int:
    """Join groups, and see who is in them.

    Each member of a group publishes a value, such as its address.
    """
    echo(parser().format_help(), end="", err=True)
    return Exit.USAGE


def _members_parser() -> Parser:
    parser = Parser(
        "coordlock group members",
        _members,
        usage="[OPTIONS] NAME",
        example="coordlock group members web --follow",
    )
    name_argument(parser, complete_group)
    follow_option(parser, "Print each change, too, until Ctrl-C.")
    service_options(parser)
    json_option(parser)
    return parser.finished()


def _members(*, name: str, service: Service, follow: bool, as_json: bool) -> int:
    """Show who is in the group NAME.

    Lists the members in the order in which they joined. The exit status is 1 if nobody is there.

    With --follow, the command prints a line for each member that joins, leaves or publishes another
    value. After an outage it also prints which members are missing, and which are back. It may
    leave out a state that lasted for a moment. With --json, each line is a document with all
    members.
    """
    check_name(name)
    with service.connected() as client:
        if follow:
            for line in _lines(client, name, as_json=as_json):
                echo(line)
        members = client.group(name).members()
    if as_json:
        echo(_document(name, members))
    elif members:
        rows = [(text_of(one.value), dashed(one.token), dashed(one.owner)) for one in members]
        print_table(("VALUE", "TOKEN", "OWNER"), rows, texts=("OWNER",), data=("VALUE",))
    else:
        complain(f"nobody is in the group {name!r}")
    return Exit.OK if members else Exit.FAILED


def _lines(client: Client, name: str, *, as_json: bool) -> Iterator[str]:
    missing: set[str] = set()
    with client.group(name).observe() as views:
        for view in views:
            if as_json:
                yield _document(name, view.members)
            elif lines := list(_changes(view, missing)):
                yield "\n".join(lines)
            missing = {one.id for one in view.members if not one.confirmed}


def _changes(view: GroupView, missing: Collection[str]) -> Iterator[str]:
    """What is new, given the ids of those that were ``missing`` before."""
    if not view.members:
        yield "nobody is there"
    lost = [one for one in view.members if not one.confirmed and one.id not in missing]
    back = [one for one in view.members if one.confirmed and one.id in missing]
    changes: Mapping[str, Sequence[Member]] = {
        "left": view.left,
        "joined": view.joined,
        "changed": view.changed,
        "missing": lost,
        "back": back,
    }
    for what, those in changes.items():
        for one in those:
            yield f"{what:<8}{text_of(one.value)}  ({one.owner})"


def _document(name: str, members: Sequence[Member]) -> str:
    return json.dumps({"name": name, "members": list(map(_fields, members))})


def _fields(member: Member) -> dict[str, object]:
    owner = None if member.owner is None else str(member.owner)
    return {
        "value": text_of(member.value),
        "token": member.token,
        "owner": owner,
        "confirmed": member.confirmed,
    }
