"""The admission rule: a snapshot and a contender in, the contenders to wait for out. No I/O.

A contender waits only for EARLIER contenders. So queues are FIFO, no contender starves, and two
contenders never wait for each other. The rule names few contenders, so a departure wakes O(1)
waiters of a lock, never all of them.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from coordlock.model.claim import AnyClaim, Convertible, Mode, Permit
from coordlock.model.contender import Contender, Entry, Snapshot

__all__ = [
    "blockers",
    "holders",
    "is_blocked",
    "keeps_out",
    "mismatch",
    "newcomer",
    "omits_blockers",
]


def blockers(snapshot: Snapshot, me: Contender) -> tuple[Contender, ...]:
    """The contenders of which one must depart before ``me`` can be granted; empty: granted.

    An empty answer counts only when the snapshot omits no contender: else ask with a full one.

    * A mode waits for the nearest earlier contender with a conflicting mode. Every earlier
      conflict must depart. Watching the nearest one wakes each waiter once.
    * A permit of n waits for the n nearest earlier contenders: when fewer than n contenders stand
      before it, at least one of those n has departed (pigeonhole), so watching them misses nothing.
    """
    if not (earlier := snapshot.before(me)):
        return ()
    if isinstance(me.claim, Permit):
        return earlier[-me.claim.of :] if len(earlier) >= me.claim.of else ()
    nearest = next((contender for contender in reversed(earlier) if keeps_out(contender, me)), None)
    return () if nearest is None else (nearest,)


def omits_blockers(snapshot: Snapshot, me: Contender) -> bool:
    """Whether contenders that ``snapshot`` omits may be in the way of ``me``."""
    return snapshot.omitted > 0 and me.claim is not Mode.NL  # which conflicts with no mode


def newcomer(entry: Entry) -> Contender:
    """The contender that ``entry`` would be at the end of its queue. For this rule alone."""
    return Contender(entry.id, "", entry.claim, order=sys.maxsize)


def is_blocked(snapshot: Snapshot, entry: Entry) -> bool:
    """Whether a contender of ``entry`` that came now would have to wait, or would be refused.

    It would be refused when the queue is in use as another kind of lock. Contenders that wait are
    in its way like those that hold. False when the contender of ``entry`` is in the queue already.
    """
    if not snapshot.contenders or snapshot.find(entry.id) is not None:
        return False
    me = newcomer(entry)
    return mismatch(snapshot, me) is not None or bool(blockers(snapshot, me))


def keeps_out(other: Contender, me: Contender) -> bool:
    """Whether ``me``, which asks for a mode, must wait for ``other``, which stands before it."""
    mine, theirs = me.claim, other.claim
    if isinstance(mine, Permit) or isinstance(theirs, Permit):
        return True  # a mismatch, refused by `mismatch`; until then it excludes
    if isinstance(theirs, Convertible):
        return isinstance(mine, Convertible) or theirs.excludes(mine, me.order)
    return theirs.conflicts(mine.mode if isinstance(mine, Convertible) else mine)


def holders(snapshot: Snapshot) -> frozenset[str]:
    """The ids of the contenders that the rule admits now. The snapshot must omit none.

    An upgrade that has not decided who goes first keeps no contender out yet: a contender that only
    the upgrade blocks may have been granted before it began, and then goes first.
    """
    admitted: set[str] = set()
    earlier: dict[AnyClaim, Contender] = {}  # one of each claim is enough
    for position, contender in enumerate(snapshot.contenders):
        mine = contender.claim
        if isinstance(mine, Permit):
            free = position < mine.of
        else:
            is_converting = isinstance(mine, Convertible) and mine.target is not None
            free = is_converting or not any(
                keeps_out(other, contender) for other in earlier.values()
            )
        if free:
            admitted.add(contender.id)
        if isinstance(mine, Convertible) and mine.yields_to is None:
            mine = replace(mine, target=None)
            contender = replace(contender, claim=mine)
        earlier[mine] = contender
    return frozenset(admitted)


def mismatch(snapshot: Snapshot, me: Contender) -> Contender | None:
    """An earlier contender that uses the queue as another kind of lock; None if there is none.

    Modes and permits don't mix, nor do semaphores of different sizes: each would count permits
    differently. Each contender checks those before it, so a queue in use stays of one kind.
    """
    for contender in snapshot.before(me):
        if isinstance(me.claim, Permit):
            if contender.claim != me.claim:
                return contender
        elif isinstance(contender.claim, Permit):
            return contender
    return None
