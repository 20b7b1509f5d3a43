"""Conflicting grants that were held at the same time, as their clients saw it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from coordlock.model.claim import Claim, Permit
from coordlock_faults.attempt import Attempt
from coordlock_faults.bounds import Bounds
from coordlock_faults.events import FOREVER, Event
from coordlock_faults.fault import Fault
from coordlock_faults.history import History
from coordlock_faults.violation import together

__all__ = ["Overlap", "conflict", "overlaps"]


@dataclass(frozen=True, slots=True)
class Overlap:
    """More holders than there may be.

    Attributes:
        holders: who they were, in the order of their tokens.
        start, end: from when to when, in nanoseconds.
        excuses: faults that explain why all but the last one still counted as held, for so long.
            Empty when there are none, or not enough.
    """

    holders: tuple[Attempt, ...]
    start: int
    end: int
    excuses: tuple[Fault, ...]

    @property
    def events(self) -> tuple[Event, ...]:
        """What proves it."""
        return together(
            *((one.granted, one.end) for one in self.holders),
            *self.excuses,
        )


def conflict(one: Claim, other: Claim) -> bool:
    """Whether the two are never held together. Permits of one semaphore are, up to their number."""
    if isinstance(one, Permit) or isinstance(other, Permit):
        return one != other
    return one.conflicts(other)


def overlaps(history: History, bounds: Bounds) -> Iterator[Overlap]:
    """All pairs of conflicting grants, and all crowds on a semaphore, that were held together.

    A hold lasts from the event `Granted` to the first of `ReleaseSent`, `LossSignalled` and the
    death of its process; without any of them, to the end.
    """
    for attempts in history.locks.values():
        holds = [(one.granted.at, one) for one in attempts if one.granted is not None]
        holds.sort(key=lambda pair: pair[0])
        yield from _on_one_lock(history, bounds, holds)


def _on_one_lock(
    history: History, bounds: Bounds, holds: list[tuple[int, Attempt]]
) -> Iterator[Overlap]:
    # A sweep: all holders when one more comes. Claims are few, so only overlaps cost more.
    holding: dict[Claim, dict[str, tuple[int, Attempt]]] = {}
    ends: list[tuple[int, str, Claim]] = []
    for start, one in holds:
        while ends and ends[0][0] <= start:
            _, name, claim = heapq.heappop(ends)
            del holding[claim][name]
        end = FOREVER if one.end is None else one.end.at
        for claim, others in holding.items():
            if conflict(claim, one.claim):
                for other in others.values():
                    yield _crowd(history, bounds, start, 1, [other, (end, one)])
            elif isinstance(claim, Permit) and len(others) >= claim.of:
                crowd = [*others.values(), (end, one)]
                yield _crowd(history, bounds, start, claim.of, crowd)
        holding.setdefault(one.claim, {})[one.name] = (end, one)
        heapq.heappush(ends, (end, one.name, one.claim))


def _crowd(
    history: History, bounds: Bounds, start: int, room: int, crowd: list[tuple[int, Attempt]]
) -> Overlap:
    """The overlap of a ``crowd`` of (end, attempt), of whom only ``room`` may hold."""
    # A process killed while it was granted has ended before it began.
    over = max(start, min(sorted(end for end, _ in crowd)[len(crowd) - room - 1], history.end))
    holders = sorted((one for _, one in crowd), key=lambda one: one.token or 0)
    # Contenders are served in the order of tokens, so it is never the last one that is stale.
    excuses = [_excuse(history, bounds, one, start, over) for one in holders[:-1]]
    found = tuple(excuse for excuse in excuses if excuse is not None)
    return Overlap(
        holders=tuple(holders),
        start=start,
        end=over,
        excuses=found if len(crowd) - len(found) <= room else (),
    )


def _excuse(history: History, bounds: Bounds, stale: Attempt, start: int, end: int) -> Fault | None:
    """What explains that ``stale`` still counted as held from ``start`` to ``end``.

    A pause that goes on after the local deadline explains it, until the process has had its time
    for the signal; an eviction, and lost data of the service, until the holder must have been told.
    Never another fault of servers or network: against those the local deadline stands; nor of wall
    clocks, which are not asked.
    """
    faults, process = history.faults, stale.process
    pause = faults.pause(process, start - bounds.signal, start)
    expired = start >= (stale.deadline or 0)
    if pause and expired and end <= faults.running(process, start, bounds.signal) + bounds.signal:
        return pause
    eviction = history.eviction(stale, start)
    removals = [eviction] if eviction else []
    for removal in (*removals, *faults.losses(start - bounds.notice, start)):
        told = faults.running(process, removal.ends + bounds.notice, bounds.signal)
        if end <= told + bounds.signal:
            return removal
    return None
