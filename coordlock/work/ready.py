"""Which items may be claimed now, as far as a client knows, and which one it claims next. No I/O.

Items that were claimed before, or delayed, come first: then new ones, by their lanes. Of the items
that are due, each of several consumers begins at another one, and goes on in order until a claim is
refused. Then it reads them again.

A client that is the only consumer takes the smallest number of all: it keeps the order in which
items were put. Where others claim, too, each client stays in the lane in which it succeeded last,
because there it meets no other and knows the next number without a reading. A refused claim drops
its lane, and the client goes on in one that had not moved between its last two readings: no other
client serves that.

No item waits for long behind newer ones: a client leaves its lane for one that no client serves,
and that is `WINDOW` or more numbers behind.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from coordlock.backend.data import Expect, Operation, Put
from coordlock.work.layout import LANES, ItemId, Layout, Serial, ending
from coordlock.work.records import Lane, Record, State
from coordlock.work.store import Outcome

__all__ = ["ENOUGH", "WINDOW", "Candidate", "Ready"]

#: A lane that no client serves gets at most so many numbers behind before one changes to it.
WINDOW: Final = 16 * LANES
#: Each of several consumers begins at another one of so many items that are due.
_SPREAD: Final = 256
#: How many of these are enough, so that a client looks for no others.
ENOUGH: Final = 16
#: Seconds without another client's claim after which this client counts as the only consumer.
_QUIET_S: Final = 1.0


@dataclass(frozen=True, eq=False)
class Candidate:
    """An item that may be claimed: ``taking`` is what makes it ready no longer."""

    before: Serial
    record: Record
    taking: Sequence[Operation]
    lane: Lane | None = None


class Ready:
    """The items that may be claimed, as last read. Safe for threads.

    The caller of `choose` reports later what came of the claim, by `ended`.
    """

    def __init__(self, layout: Layout, pick: Callable[[int], int]) -> None:
        """``pick`` chooses one of so many, at random."""
        self._layout: Final = layout
        self._pick: Final = pick
        self._lock: Final = threading.RLock()
        self.forget()
        #: The lane in which this client's last claim succeeded.
        self._own: int | None = None
        #: When another client's claim was seen last, in seconds of the client's clock.
        self._others_at = -math.inf
        #: Due items, and the lanes, of claims that are under way: those whose candidate is in use.
        self._busy: WeakValueDictionary[Serial | int, Candidate] = WeakValueDictionary()

    def forget(self) -> None:
        """Start anew: in another session, because the service may have lost its data with one."""
        with self._lock:
            self._lanes: dict[int, Lane] = {}
            self._tail = 1
            #: What was read last, and which lanes had not moved since the reading before.
            self._read: dict[int, Lane] = {}
            self._unserved: frozenset[int] = frozenset()
            #: The items that were claimed or delayed and are due, in the order in which this client
            #: claims them: their keys and records.
            self._due: dict[Serial, tuple[str, Record]] = {}
            #: When the next one is due, in seconds since 1970, and at which changes that was found.
            self.next_due = math.inf
            self._found_at = self.changes = -1

    def learn(self, state: State, now: float) -> None:
        """Take in ``state``. One that is older than what is known changes nothing."""
        with self._lock:
            self._tail = max(self._tail, state.tail.next)
            self.changes = max(self.changes, state.changes)
            self._unserved = frozenset(
                lane.lane for lane in state.lanes if self._read.get(lane.lane) == lane
            )
            self._read = {lane.lane: lane for lane in state.lanes}
            for lane in state.lanes:
                known = self._lanes.get(lane.lane)
                if known is None or lane.version > known.version:
                    self._lanes[lane.lane] = lane
                    if known is not None and lane.lane not in self._busy:
                        self._others_at = now

    def learn_due(
        self, changes: int, due: Mapping[Serial, tuple[str, Record]], next_due: float, now: float
    ) -> None:
        """Take in what is ``due``, which was read after these ``changes``."""
        with self._lock:
            if not self._found_at <= changes <= self.changes:
                return  # it is older, or of an earlier session
            order = sorted(due, key=lambda one: (due[one][1].at, one))
            start = 0 if self.is_alone(now) else self._pick(min(len(order), _SPREAD) or 1)
            order = [*order[start:_SPREAD], *order[:start], *order[_SPREAD:]]
            self._found_at, self.next_due = changes, next_due
            self._due = {one: due[one] for one in order}

    def may_be_due(self, time_of_day: float) -> bool:
        """Whether more items that were claimed or delayed may be due."""
        is_old = self.changes > self._found_at or time_of_day >= self.next_due
        return is_old and len(self._due) < ENOUGH

    def is_alone(self, now: float) -> bool:
        """Whether no other client was seen to claim lately."""
        return now - self._others_at >= _QUIET_S

    @property
    def count(self) -> int:
        """How many claims can be made at the same time."""
        with self._lock:
            return len(self._free_lanes()) + len(self._due.keys() - self._busy)

    def choose(self, now: float) -> Candidate | None:
        """What to claim next, which no other caller of this client gets meanwhile; or None."""
        with self._lock:
            if (one := next((one for one in self._due if one not in self._busy), None)) is not None:
                key, record = self._due[one]
                self._busy[one] = candidate = Candidate(one, record, ending(key))
                return candidate
            if not (lanes := self._free_lanes()):
                return None
            lane = lanes[0] if self.is_alone(now) else self._shared_out(lanes)
            key = self._layout.lanes[lane.lane]
            moving = Expect(key, lane.version), Put(key, lane.after.encode())
            candidate = Candidate(Serial(ItemId(lane.number)), Record(), moving, lane)
            self._busy[lane.lane] = candidate
            return candidate

    def _shared_out(self, lanes: list[Lane]) -> Lane:
        own = [lane for lane in lanes if lane.lane == self._own]
        unserved = [lane for lane in lanes if lane.lane in self._unserved]
        if own:
            unserved = [lane for lane in unserved if lane.number + WINDOW <= own[0].number]
        choice = unserved or own or lanes
        return choice[self._pick(len(choice))]

    def ended(self, candidate: Candidate, outcome: Outcome, now: float) -> None:
        """What came of a claim: refused where another client was faster."""
        lane = candidate.lane
        with self._lock:
            if lane is None:
                self._busy.pop(candidate.before, None)
                if (
                    outcome is Outcome.REFUSED
                ):  # others have the next ones, too: they are to be read
                    self._others_at = now
                    self._due, self.next_due = {}, -math.inf
                elif outcome is Outcome.MADE:
                    self._due.pop(candidate.before, None)
                return
            self._busy.pop(lane.lane, None)
            known = self._lanes.get(lane.lane)
            if outcome is Outcome.MADE:
                self._own = lane.lane
                if known is None or known.version <= lane.version:
                    self._lanes[lane.lane] = lane.after
                return
            if known == lane:  # it is to be read
                del self._lanes[lane.lane]
            if outcome is Outcome.REFUSED:
                self._others_at = now
                self._own = None

    def _free_lanes(self) -> list[Lane]:
        """Those from which a claim may be made; that of the smallest number first."""
        free = [
            lane
            for lane in self._lanes.values()
            if lane.number < self._tail and lane.lane not in self._busy
        ]
        return sorted(free, key=lambda lane: lane.number)
