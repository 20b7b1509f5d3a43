"""Which items may be claimed now, as far as a client knows, and which one it claims next. No I/O.

Items that were claimed before, or delayed, come first: then new ones, by their lanes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from coordlock.backend.data import Expect, Operation, Put
from coordlock.runtime.promise import Promise
from coordlock.work.lanes import Lane, Lanes
from coordlock.work.layout import ItemId, Layout, Serial, ending
from coordlock.work.records import Again, State, lane_record
from coordlock.work.store import Outcome

__all__ = ["Candidate", "Ready"]

#: Several consumers claim one of so many of the items that were claimed before.
_SPREAD: Final = 16


@dataclass(frozen=True)
class Candidate:
    """An item that may be claimed: ``taking`` is what makes it ready no longer."""

    before: Serial
    again: Again
    taking: Sequence[Operation]
    lane: Lane | None = None


class Ready:
    """The items that may be claimed, as last read. Safe for threads.

    Whoever gets a candidate by `choose` says later what came of it, by `ended`.
    """

    def __init__(self, layout: Layout, pick: Callable[[int], int]) -> None:
        """``pick`` chooses one of so many, at random."""
        self._layout: Final = layout
        self._pick: Final = pick
        self._lock: Final = threading.RLock()
        self._lanes: Final = Lanes(pick)
        self._again: dict[Serial, Again] = {}
        #: The bell at which ``_again`` was read.
        self._again_at = -1
        self._busy: set[Serial] = set()
        #: Kept when a claim that is under way has ended; made when somebody waits for it.
        self._ended: Promise[None] = Promise()

    def learn(self, state: State, now: float) -> bool:
        """Take in ``state``; whether the bell was rung since `learn_again`, which is to follow."""
        self._lanes.learn(state.lanes, state.tail.next, now)
        return self._again_at < state.bell

    def learn_again(self, bell: int, again: Mapping[Serial, Again]) -> None:
        """Take in all of ``again``, which was read after the ``bell``."""
        with self._lock:
            if bell >= self._again_at:
                self._again_at, self._again = bell, dict(again)

    def choose(self, *, is_fresh: bool = False) -> Candidate | None:
        """What to claim next, which no other caller of this client gets meanwhile; or None.

        ``is_fresh`` says that the caller has looked since it was called. What has come since need
        not go first, and must not refuse the claim: items with a delay may be put all the time.
        """
        with self._lock:
            free = ((again.due, one) for one, again in self._again.items() if one not in self._busy)
            if first := nsmallest(1 if self._lanes.is_alone else _SPREAD, free):
                _, one = first[self._pick(len(first))]
                self._busy.add(one)
                return Candidate(one, self._again[one], ending(self._layout.ready(one)))
        lane = self._lanes.choose()
        if lane is None:
            return None
        key = self._layout.lanes[lane.lane]
        moving: list[Operation] = [
            Expect(key, lane.version),
            Put(key, lane_record(lane.after.number)),
        ]
        if self._lanes.is_alone and not is_fresh:  # keeps the order: nothing has come that is first
            moving.append(Expect(self._layout.bell, self._again_at))
        return Candidate(Serial(ItemId(lane.number)), Again(), moving, lane)

    @property
    def is_alone(self) -> bool:
        """Whether no other client was seen to take new items lately."""
        return self._lanes.is_alone

    @property
    def has_any(self) -> bool:
        """Whether there is a candidate, as far as is known."""
        with self._lock:
            return self._lanes.has_any or not self._again.keys() <= self._busy

    @property
    def has_many(self) -> bool:
        """Whether so many wait that were claimed before or delayed that no more are needed soon."""
        return len(self._again) > _SPREAD

    def others(self) -> Promise[None] | None:
        """What is kept when another claim of this client has ended; None where none hides items."""
        ended = self._ended  # before the look, or that claim may have ended meanwhile
        return ended if self._lanes.has_more else None

    def ended(self, candidate: Candidate, outcome: Outcome, now: float) -> None:
        """What came of a claim: refused where another client was faster."""
        with self._lock:
            if candidate.lane is None:
                self._busy.discard(candidate.before)
                if outcome is not Outcome.UNCLEAR:
                    self._again.pop(candidate.before, None)
            elif outcome is Outcome.MADE:
                self._lanes.taken(candidate.lane)
            elif outcome is Outcome.REFUSED:
                self._lanes.refused(candidate.lane, now)
            else:
                self._lanes.untold(candidate.lane)
            ended, self._ended = self._ended, Promise()
        ended.resolve(None)
