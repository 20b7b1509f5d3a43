"""Which new item a client claims next. No I/O.

A client that is the only consumer takes the smallest number of all: it keeps the order in which
items were put. Where others take, too, each client stays in the lanes in which it succeeded last,
because there it meets nobody and knows the next number without asking. A refused claim drops its
lane, and the client goes on in one that had not moved between its last two readings: nobody serves
that. So the lanes come to be shared out by how fast each client asks.

No item waits for long behind newer ones. No claim is for a number that is `WINDOW` or more beyond
the smallest one that is free, so a lane that nobody serves is the only choice before long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from coordlock.work.layout import LANES

__all__ = ["WINDOW", "Lane", "Lanes", "first_number"]

#: Several consumers begin items within this many numbers of the first that is free.
WINDOW: Final = 16 * LANES
#: How often this client doubles that after claims that were refused one after the other, to get out
#: of the way of faster ones.
_DOUBLINGS: Final = 2
#: Seconds without another client's claim after which this client counts as the only consumer.
_QUIET: Final = 1.0


def first_number(lane: int) -> int:
    """The first number of ``lane``: items are counted from 1."""
    return lane or LANES


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane's next number, and the version of its key at which that was read; 0 without a key."""

    lane: int
    number: int
    version: int

    @property
    def after(self) -> Lane:
        """The lane once its next number was claimed."""
        return Lane(self.lane, self.number + LANES, self.version + 1)

    def waiting(self, tail: int) -> int:
        """How many of its numbers, up to the next item's at the ``tail``, are not claimed."""
        return max(0, -(-(tail - self.number) // LANES))


class Lanes:
    """What one client knows of the lanes. Safe for threads."""

    def __init__(self, pick: Callable[[int], int]) -> None:
        """``pick`` chooses one of so many, at random."""
        self._pick: Final = pick
        # Reentrant, because a signal handler may take an item.
        self._lock: Final = threading.RLock()
        self._known: dict[int, Lane] = {}
        self._tail = 1
        #: What was read last, and of that the lanes that had not moved since the reading before.
        self._read: dict[int, Lane] = {}
        self._still: frozenset[int] = frozenset()
        #: The lanes in which a claim of this client is under way.
        self._busy: set[int] = set()
        #: The lanes in which this client's last claim succeeded.
        self._own: list[int] = []
        #: How many claims were refused since one was made.
        self._refused = 0
        #: Whether this client takes for the only consumer, and when others were seen last.
        self._is_alone = True
        self._others_at: float | None = None

    @property
    def is_alone(self) -> bool:
        """Whether no other client was seen to take new items lately."""
        return self._is_alone

    @property
    def has_any(self) -> bool:
        """Whether `choose` would give a lane."""
        with self._lock:
            return bool(self._free())

    @property
    def has_more(self) -> bool:
        """Whether items wait in lanes in which a claim of this client is under way."""
        with self._lock:
            return any(
                lane not in self._known or self._known[lane].after.number < self._tail
                for lane in self._busy
            )

    def learn(self, lanes: Sequence[Lane], tail: int, now: float) -> None:
        """Take in what was read. An older reading than what is known changes nothing."""
        with self._lock:
            self._tail = max(self._tail, tail)
            self._still = frozenset(one.lane for one in lanes if self._read.get(one.lane) == one)
            self._read = {one.lane: one for one in lanes}
            for read in lanes:
                known = self._known.get(read.lane)
                if known is not None and read.version <= known.version:
                    continue
                own = read.lane in self._busy and known is not None and read == known.after
                if known is not None and not own:
                    self._see_others(now)
                self._known[read.lane] = read
            if self._others_at is not None and now - self._others_at >= _QUIET:
                self._is_alone, self._others_at = True, None

    def choose(self) -> Lane | None:
        """The lane to claim from, which is this caller's until `taken` or `refused`; or None."""
        with self._lock:
            free = self._free()
            if not free:
                return None
            lane = free[0][1]
            if not self._is_alone:
                smallest = min(one.number for one in self._known.values())
                end = smallest + (WINDOW << min(self._refused, _DOUBLINGS))
                near = [lane for number, lane in free if number < end] or [lane]
                self._own = [one for one in self._own if one in near or one in self._busy]
                own = [one for one in self._own if one in near]
                unserved = [one for one in near if one in self._still] or near
                lane = own[0] if own else unserved[self._pick(len(unserved))]
            self._busy.add(lane)
            return self._known[lane]

    def taken(self, claimed: Lane) -> None:
        """The claim of ``claimed`` was made."""
        with self._lock:
            self._busy.discard(claimed.lane)
            self._refused = 0
            if not self._is_alone and claimed.lane not in self._own:
                self._own.append(claimed.lane)
            known = self._known.get(claimed.lane)
            if known is None or known.version <= claimed.version:
                self._known[claimed.lane] = claimed.after

    def refused(self, claimed: Lane, now: float) -> None:
        """The claim was not made, because another client was faster: the lane is to be read."""
        with self._lock:
            self._see_others(now)
            self._refused += 1
            self._own = [lane for lane in self._own if lane != claimed.lane]
            self.untold(claimed)

    def untold(self, claimed: Lane) -> None:
        """The claim may have been made or not: the lane is to be read."""
        with self._lock:
            self._busy.discard(claimed.lane)
            if self._known.get(claimed.lane) == claimed:
                del self._known[claimed.lane]

    def _free(self) -> list[tuple[int, int]]:
        """The next numbers, with their lanes, that may be claimed; the smallest first."""
        return sorted(
            (one.number, one.lane)
            for one in self._known.values()
            if one.number < self._tail and one.lane not in self._busy
        )

    def _see_others(self, now: float) -> None:
        self._is_alone, self._others_at = False, now
