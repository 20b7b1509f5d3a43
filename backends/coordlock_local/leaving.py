"""Leaving a queue, and telling those that wait for it.

By the rule of admission a contender waits for the nearest one ahead that conflicts with it. So one
that leaves tells those behind it with which it conflicts, as far as none between does: the next
one, or a group of readers. It passes over those whose processes have ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, partial

from coordlock.model.claim import AnyClaim, Mode, Permit
from coordlock.model.contender import Contender
from coordlock_local.counter import Counter
from coordlock_local.directory import Directory
from coordlock_local.pipes import publish, send
from coordlock_local.session import is_alive
from coordlock_local.slots import EVICTED, Slot, Slots, queued

__all__ = ["evict", "leave", "waiting"]


def leave(directory: Directory, contender: Contender, own: Container[str]) -> bool:
    """Remove this process's ``contender``; whether it was there. Idempotent.

    ``own`` are the ids of this process's contenders.
    """
    slot = Slot.of(contender)
    try:
        with Slots(directory, slot.path) as slots:
            value = slots.get(slot.number)
            if value & ~EVICTED == slot.token:
                slots.free(slot.number, contender.id, own)
            _tell(directory, slots, slot, contender)
            return value == slot.token
    except FileNotFoundError:
        return False


def evict(directory: Directory, contender: Contender) -> bool:
    """Remove a contender of any session; whether it was there. Raises `Busy`."""
    slot = Slot.of(contender)

    def mark(_: int) -> bool:
        with Slots(directory, slot.path) as slots:
            if slots.get(slot.number) != slot.token:
                return False
            slots.mark(slot.number, slot.token)
            send(directory, contender.session, slot.queue)
            _tell(directory, slots, slot, contender)
            return True

    try:
        return Counter(directory).hold(mark)
    except FileNotFoundError:
        return False


def _tell(directory: Directory, slots: Slots, slot: Slot, contender: Contender) -> None:
    """Tell all that wait for ``contender``, which has left ``slot``."""
    index = slots.index()
    ordered = queued(index)
    ahead = bisect_right(ordered, slot.token)
    behind = (
        other
        for token in ordered[ahead:]
        if (other := slots.contender(index.index(token), token)) is not None  # it has left, too
    )
    # The session learns of its own departures without a message.
    told = {contender.session}
    for session in waiting(contender.claim, ahead, behind, partial(_lives, directory)):
        if session not in told:
            told.add(session)
            send(directory, session, slot.queue)
    publish(directory, slot.queue)


def waiting(
    claim: AnyClaim, ahead: int, behind: Iterable[Contender], lives: Callable[[str], bool]
) -> Iterator[str]:
    """The sessions ``behind`` that wait for a contender of ``claim`` before which ``ahead`` stand.

    One that has died covers no other; a holder that has makes room for one more permit.
    """
    if isinstance(claim, Permit):
        living = 0
        for position, other in enumerate(behind, ahead + 1):
            if living >= claim.of:
                return
            if position >= claim.of:  # else it has a permit
                yield other.session
            living += lives(other.session)
        return
    uncovered = _conflicts(claim)
    for other in behind:
        if not uncovered:
            return
        if (other.claim if isinstance(other.claim, Mode) else Mode.EX) in uncovered:
            yield other.session
        # Others change what they exclude.
        if isinstance(other.claim, Mode) and lives(other.session):
            uncovered -= _conflicts(other.claim)


def _lives(directory: Directory, session: str) -> bool:
    with suppress(OSError):  # then it wakes more sessions than necessary
        return is_alive(directory, session)
    return False


@lru_cache
def _conflicts(claim: AnyClaim) -> frozenset[Mode]:
    """The modes that must wait for ``claim``, as far as its marker tells."""
    mine = claim if isinstance(claim, Mode) else Mode.EX
    return frozenset([mode for mode in Mode if mine.conflicts(mode)])
