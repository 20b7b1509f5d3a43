"""``coordlock watch``: who leads, or who is there, as it changes."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator

from coordlock.cli.connection import Service
from coordlock.cli.data import text_of
from coordlock.cli.options import json_option, name_argument, service_options
from coordlock.cli.parser import Parser
from coordlock.cli.text import echo
from coordlock.client import Client
from coordlock.model.names import check_name
from coordlock.recipes.election import Candidate
from coordlock.recipes.group import GroupView, Member

__all__ = ["parser", "watch"]


def parser() -> Parser:
    """Its parser."""
    parser = Parser(
        "coordlock watch",
        watch,
        usage="[OPTIONS] NAME",
        example="coordlock watch scheduler --json",
    )
    name_argument(parser)
    service_options(parser)
    parser.flag("--members", help="Follow who is in the group NAME, in place of who leads.")
    parser.flag("--once", help="Show the state of now, and end.")
    json_option(parser)
    return parser.finished()


def watch(
    *,
    name: str,
    service: Service,
    members: bool,
    once: bool,
    as_json: bool,
) -> None:
    """Follow who leads in the election NAME, or who is in the group NAME.

    Prints a line for each leader, with its token and its value, and for nobody; with --members,
    one for each member that joins, leaves or publishes another value, and after an outage for each
    that is missing, and back. A state that came and went between two lines may be left out; none
    comes late. With --json each line is a document with the whole state. Ends with Ctrl-C.
    """
    check_name(name)
    with service.connected() as client:
        lines = _of_group(client, name, as_json) if members else _of_leader(client, name, as_json)
        for line in lines:
            echo(line)
            sys.stdout.flush()
            if once:
                return


def _of_leader(client: Client, name: str, as_json: bool) -> Iterator[str]:
    with client.election(name).observe() as leaders:
        for leader in leaders:
            if as_json:
                yield json.dumps({"name": name, "leader": _candidate(leader)})
            elif leader is None:
                yield "nobody leads"
            else:
                yield f"{leader.token}  {text_of(leader.value)}"


def _of_group(client: Client, name: str, as_json: bool) -> Iterator[str]:
    missing: set[str] = set()
    with client.group(name).observe() as views:
        for view in views:
            if as_json:
                yield json.dumps({"name": name, "members": list(map(_member, view.members))})
            elif lines := list(_changes(view, missing)):
                yield "\n".join(lines)
            missing = {one.id for one in view.members if not one.confirmed}


def _changes(view: GroupView, missing: Collection[str]) -> Iterator[str]:
    """What is new, given the ids of those that were ``missing`` before."""
    if not view.members:
        yield "nobody is there"
    lost = [one for one in view.members if not one.confirmed and one.id not in missing]
    back = [one for one in view.members if one.confirmed and one.id in missing]
    for what, those in (
        ("left", view.left),
        ("joined", view.joined),
        ("changed", view.changed),
        ("missing", lost),
        ("back", back),
    ):
        for one in those:
            yield f"{what:<8}{text_of(one.value)}  ({one.owner})"


def _candidate(leader: Candidate | None) -> dict[str, object] | None:
    if leader is None:
        return None
    return {"value": text_of(leader.value), "token": leader.token}


def _member(member: Member) -> dict[str, object]:
    owner = None if member.owner is None else str(member.owner)
    return {
        "value": text_of(member.value),
        "token": member.token,
        "owner": owner,
        "confirmed": member.confirmed,
    }
