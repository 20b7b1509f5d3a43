"""What is kept under names though nobody may be there: for ``ls``, ``show`` and ``doctor``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from coordlock.client import Client
from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    NameConflict,
    SessionLost,
)

if TYPE_CHECKING:
    from coordlock.client.records import Record  # which loads all recipes

__all__ = ["counted", "filled", "state_of", "work_queues"]


def work_queues(client: Client) -> list[Record]:
    """The work queues, `filled`."""
    return filled(client, (one for one in client.admin.records() if one.kind == "work queue"))


def filled(client: Client, kept: Iterable[Record]) -> list[Record]:
    """What is ``kept``, with what is in the work queues."""
    return [
        replace(one, state=_items(client, one.name)) if one.kind == "work queue" else one
        for one in kept
    ]


def _items(client: Client, name: str) -> Mapping[str, Any] | None:
    """How many items of the work queue are where; None where it is not as coordlock writes it."""
    try:
        return asdict(client.work_queue(name).stats())
    except (AuthenticationFailed, BackendUnavailable, SessionLost):
        raise
    except (BackendError, NameConflict):
        return None


def state_of(one: Record) -> str:
    """The state of what is `filled`, in words."""
    match one.kind, one.state:
        case _, None:
            return "not as coordlock writes it"
        case "barrier", {"generations": passed}:
            return f"passed {passed} time{'s' * (passed != 1)}"
        case "counter", {"number": number}:
            return str(number)
        case "gate", {"open": is_open}:
            return "open" if is_open else "shut"
        case "job", _:
            return "see coordlock jobs"
        case "release request", {"asked": asked}:
            return f"{asked} asked"
        case "latch", {"remaining": left, "count": count}:
            return f"{left} of {count} left" if left else f"open, {count} of {count} counted down"
        case _, counts:
            return counted(counts)


def counted(items: Mapping[str, int]) -> str:
    """How many items of a work queue are where, in words."""
    return ", ".join(f"{number} {state}" for state, number in items.items())
