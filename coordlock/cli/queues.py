"""What the contenders of a queue tell of it: what it is used as, and what each asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from coordlock.model.claim import Convertible, Mode, Permit
from coordlock.model.queue_entry import QueueEntry

__all__ = ["Queue", "kind_of", "mode_of"]

Queue = tuple[QueueEntry, ...]

_BARRIERS: Final = ("barrier", "double barrier")
#: Where kazoo's locks publish who they are, just as its elections and coordlock's do.
_AMBIGUOUS: Final = "zookeeper"


def kind_of(queue: Iterable[QueueEntry], scheme: str) -> str | None:
    """``lock``, ``semaphore``, ``election``, ``group``, ``barrier`` or ``double barrier``.

    None where it cannot be told, or where the contenders of ``queue`` are of several kinds.
    """
    kinds = {_kind(one, scheme) for one in queue}
    return kinds.pop() if len(kinds) == 1 else None


def _kind(one: QueueEntry, scheme: str) -> str | None:
    match one.contender.claim:
        case Permit():
            return "semaphore"
        case Convertible():
            return "lock"
        case Mode.NL if one.value:
            return _barrier(one.value) or "group"
        case Mode.NL:
            return None  # a lock in this mode, or a member that publishes nothing
    if one.owner is not None and one.owner.host:
        return "lock"
    # It publishes what it is known by, and nothing else: as candidates do.
    return "election" if one.value and scheme != _AMBIGUOUS else None


def _barrier(value: bytes) -> str | None:
    """As what a party that publishes ``value`` takes the queue; None for another member."""
    try:
        fields: Any = json.loads(value)
        kind, _ = fields["barrier"], fields["parties"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return kind if kind in _BARRIERS else None


def mode_of(one: QueueEntry) -> str:
    """What ``one`` holds or waits for."""
    if isinstance(one.claim, Permit):
        return f"1 of {one.claim.of}"
    target = one.converting_to
    return one.claim.name if target is None else f"{one.claim.name} to {target.name}"
