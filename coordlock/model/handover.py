"""How a departure proves, without a reading, that a waiter's turn has come. No I/O.

A waiter knows a snapshot of each of its queues, and which of the contenders ahead have left since.
No contender enters a queue before one that is in it, and a contender that has left never returns.
So at most those that a snapshot shows are still ahead, less those that have left. Two questions are
left, which only the service can answer: it answers them with each departure.

* Is the waiter itself still in all its queues? It is if the departure came *in order*: had one of
  the waiter's contenders, in any queue, left before the departed one or in the same step, that
  would have been reported. So one departure out of order makes all queues worth nothing, and a
  reading of all of them restores them: of one alone, it would not show whether the waiter has lost
  its place in another.
* Who else stood ahead, beyond the listed ones? None that matters if the departed one held the lock,
  as `Departure.FIRST` says, and its claim excludes all that the waiter's excludes: what conflicts
  with the waiter would have kept it out, too. For a permit of n, fewer than n stood before it; so
  fewer than n stand before the waiter that follows it at once.

A convertible contender changes what it claims, so nothing is proved while one may stand ahead.
Before an exclusive holder there is none, listed or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from coordlock.model.admission import blockers
from coordlock.model.claim import Convertible, Mode
from coordlock.model.contender import Contender, Snapshot

__all__ = ["Departure", "after"]


class Departure(Enum):
    """How far the departure of a contender proves anything to the one that waits for it."""

    #: Nothing: the waiter's own contenders may have left before. Or it has not left, but changed.
    UNORDERED = auto()
    #: Had a contender of the waiter left before, or in the same step, it would have been reported.
    IN_ORDER = auto()
    #: In order; and none stood before it that conflicts with it: it held the lock.
    FIRST = auto()


def after(
    queues: Sequence[Snapshot],
    mine: Sequence[Contender],
    departures: Mapping[Contender, Departure],
) -> tuple[Snapshot, ...] | None:
    """The ``queues`` of my contenders after ``departures``; None: all of them must be read."""
    if Departure.UNORDERED in departures.values():
        return None
    after = tuple([_after(*pair, departures) for pair in zip(queues, mine, strict=True)])
    known = tuple([snapshot for snapshot in after if snapshot is not None])
    return known if len(known) == len(after) else None


def _after(
    snapshot: Snapshot, me: Contender, departures: Mapping[Contender, Departure]
) -> Snapshot | None:
    ahead = snapshot.before(me)
    gone = [contender for contender in ahead if contender in departures]
    if not gone:
        return snapshot
    if any(isinstance(contender.claim, Convertible) for contender in ahead):
        return None
    left = snapshot.without(gone)
    holders = [contender for contender in gone if departures[contender] is Departure.FIRST]
    if holders and _leaves_to(holders[-1], me, left):
        left = left.behind(holders[-1])
    return None if left.omitted or blockers(left, me) else left


def _leaves_to(holder: Contender, me: Contender, left: Snapshot) -> bool:
    """Whether no contender before ``holder`` can be in my way."""
    theirs, mine = holder.claim, me.claim
    if isinstance(theirs, Mode) and isinstance(mine, Mode):
        if left.omitted and theirs is not Mode.EX:
            return False  # there may be a convertible one
        return all(theirs.conflicts(mode) for mode in Mode if mine.conflicts(mode))
    return theirs == mine and not left.behind(holder).before(me)
