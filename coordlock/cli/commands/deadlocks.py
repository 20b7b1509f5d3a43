"""``coordlock deadlocks``: clients that wait for each other in a cycle."""

from __future__ import annotations

import json

from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain
from coordlock.cli.text import echo, printable
from coordlock.model.contender import Contender
from coordlock.model.waits import Deadlock

__all__ = ["deadlocks"]


def deadlocks(*, service: Service, as_json: bool) -> int:
    """Show clients that wait for each other in a cycle.

    Clients look for deadlocks themselves after a second or two, and the youngest gives up: see the
    option deadlock_delay. This does not end a deadlock that stays listed here. The exit status is 1
    if there is a deadlock.
    """
    with service.connected() as client:
        found = client.admin.deadlocks()
    if as_json:
        echo(json.dumps([_document(one) for one in found]))
    elif found:
        echo("\n\n".join("\n".join(_drawing(one)) for one in found))
    else:
        complain("there is no deadlock")
    return Exit.FAILED if found else Exit.OK


def _drawing(deadlock: Deadlock) -> list[str]:
    lines = []
    for step in deadlock.steps:
        has = "held by" if step.holding else "asked for before by"
        lines.append(printable(step.who_waits))
        lines.append(f"  waits for {printable(repr(step.name))}, {has}")
    return [*lines, f"{printable(deadlock.steps[0].who_waits)} (gives up)"]


def _document(deadlock: Deadlock) -> dict[str, object]:
    return {
        "victim": deadlock.victim,
        "steps": [
            {
                "name": step.name,
                "waiter": _party(step.waiter, step.waiter_at),
                "blocker": _party(step.blocker, step.blocker_at),
                "holding": step.holding,
            }
            for step in deadlock.steps
        ],
    }


def _party(contender: Contender, at: str) -> dict[str, object]:
    owner = contender.owner
    return {
        "token": contender.token,
        "owner": None if owner is None else str(owner),
        "since": None if owner is None else owner.since,
        "key": contender.key,
        "at": at,
    }
