"""Join groups, and see their members.

Each member of a group publishes a value, such as its address.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

from coordlock.cli.connection import Service
from coordlock.cli.data import text_of
from coordlock.cli.exits import Exit, complain
from coordlock.cli.table import print_table
from coordlock.cli.text import echo
from coordlock.client import Client
from coordlock.recipes.group import GroupView, Member

__all__ = ["members"]


def members(*, name: str, service: Service, follow: bool, as_json: bool) -> int:
    """Show who is in the group NAME.

    Lists the members in the order in which they joined. The exit status is 1 if nobody is there.

    With --follow, the command prints a line for each member that joins, leaves or publishes another
    value. After an outage it also prints which members are missing, and which are back. It may
    leave out a state that lasted for a moment. With --json, each line is a document with all
    members.
    """
    with service.connected() as client:
        if follow:
            for line in _lines(client, name, as_json=as_json):
                echo(line)
        members = client.group(name).members()
    if as_json:
        echo(_document(name, members))
    elif members:
        print_table(
            [
                {"VALUE": text_of(one.value), "TOKEN": one.token, "OWNER": one.owner}
                for one in members
            ]
        )
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
