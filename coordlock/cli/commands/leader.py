"""``coordlock leader``: who leads in an election, once or as it changes."""

from __future__ import annotations

import json

from coordlock.cli.connection import Service
from coordlock.cli.data import text_of
from coordlock.cli.exits import Exit, complain
from coordlock.cli.text import echo
from coordlock.recipes.election import Candidate

__all__ = ["leader"]


def leader(*, name: str, service: Service, follow: bool, as_json: bool) -> int:
    """Show who leads in the election NAME.

    Prints the leader's fencing token and the value that it campaigns with. The exit status is 1 if
    nobody leads.

    With --follow, the command prints a line for each new leader, and `nobody leads` in between. It
    may leave out a leader that was replaced at once. With --json, each line is a document.
    """
    with service.connected() as client:
        election = client.election(name)
        if not follow:
            return _show(name, election.leader(), as_json=as_json)
        with election.observe() as leaders:
            for one in leaders:
                echo(_line(name, one, as_json=as_json))
    return Exit.OK


def _show(name: str, one: Candidate | None, *, as_json: bool) -> int:
    if one is None and not as_json:
        complain(f"nobody leads in the election {name!r}")
    else:
        echo(_line(name, one, as_json=as_json))
    return Exit.FAILED if one is None else Exit.OK


def _line(name: str, one: Candidate | None, *, as_json: bool) -> str:
    if not as_json:
        return "nobody leads" if one is None else f"{one.token}  {text_of(one.value)}"
    known = None if one is None else {"value": text_of(one.value), "token": one.token}
    return json.dumps({"name": name, "leader": known})
