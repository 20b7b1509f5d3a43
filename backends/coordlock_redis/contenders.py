"""Contenders as arguments of scripts, and as what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from coordlock.model.claim import AnyClaim, Mode, Permit, in_force, parse_marker
from coordlock.model.contender import Contender, Entry, Owner, Snapshot
from coordlock_redis.requests import Word

__all__ = ["compatible", "entries", "names", "queue_of", "snapshot"]


def names(contender: Contender) -> tuple[Word, ...]:
    """What names a contender: its queue, its id and its token."""
    return queue_of(contender), contender.id, contender.order


def queue_of(contender: Contender) -> str:
    """The queue in which it is."""
    return contender.key.rpartition("/")[0]


def compatible(claim: AnyClaim) -> str:
    """The markers of the modes that may be held together with ``claim``."""
    mine = in_force(claim)
    return "" if isinstance(mine, Permit) else _COMPATIBLE[mine]


#: The same for each mode.
_COMPATIBLE: Final = {
    mine: " ".join(mode.marker for mode in Mode if not mine.conflicts(mode)) for mine in Mode
}


def entries(session: str, added: Sequence[Entry], *, unless_blocked: bool) -> list[Word]:
    """The arguments that add the entries."""
    arguments: list[Word] = [session, int(unless_blocked)]
    for entry in added:
        claim = entry.claim
        arguments += (
            entry.queue,
            entry.id,
            claim.marker,
            entry.owner.encode(),
            entry.value,
            max(claim.window, 1),
            compatible(claim),
        )
    return arguments


def snapshot(queue: str, revision: int, listed: Sequence[Any]) -> Snapshot:
    """The contenders that a script has listed, behind how many it has omitted."""
    found = [_contender(queue, *listed[at : at + 4]) for at in range(1, len(listed), 4)]
    return Snapshot(queue, tuple(found), revision, listed[0])


def _contender(queue: str, id: bytes, token: int, claim: bytes, value: bytes) -> Contender:
    marker, _, rest = claim.partition(b" ")
    session, _, owner = rest.partition(b" ")
    version, _, published = value.partition(b" ")
    name = id.decode("utf-8", "replace")
    return Contender(
        id=name,
        key=f"{queue}/{name}",
        claim=parse_marker(marker.decode("utf-8", "replace"), published),
        order=token,
        token=token,
        session=session.decode("utf-8", "replace"),
        owner=Owner.decode(owner),
        value=published,
        version=int(version or 1),
    )
