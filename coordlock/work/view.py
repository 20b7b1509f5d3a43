"""A work queue as people see it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from coordlock.kernel.retry import retried
from coordlock.model.contender import Contender
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import all_of
from coordlock.work.desk import Desk
from coordlock.work.layout import Attempt, ItemId, Shelf
from coordlock.work.records import Again, Claim, Dead, Item, attempts

__all__ = [
    "WorkItem",
    "WorkQueueStats",
    "dead_items",
    "live_items",
    "stats",
    "waiting",
    "worker_of",
]

#: How many items are read at once.
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class WorkItem:
    """An item of a work queue, as it was when it was read.

    Attributes:
        id: what `put` returned.
        state: ``"waiting"`` to be taken, ``"taken"``, ``"delayed"``, or ``"dead"``: taken as often
            as it may be.
        attempts: how often it was taken.
        put_at: when it was put, in seconds since 1970, by the clock of who did.
        data: what was put.
        since: when it was taken, or died, in seconds since 1970; None for others.
        due: when a delayed one may be taken; None for others.
        reason: why a dead one was not done; "" for others.
        token: that of the job of a taken one; None for others.
    """

    id: str
    state: str
    attempts: int
    put_at: float
    data: bytes
    since: float | None = None
    due: float | None = None
    reason: str = ""
    token: int | None = None


@dataclass(frozen=True, slots=True)
class WorkQueueStats:
    """How many items of a work queue are where; each was counted at a moment of its own.

    Attributes:
        waiting: those that may be taken now.
        taken: those at work.
        delayed: those that wait for their time.
        dead: those that were taken as often as they may be.
    """

    waiting: int
    taken: int
    delayed: int
    dead: int


def waiting(desk: Desk) -> Steps[int]:
    """How many items may be taken now."""
    state = yield from desk.state()
    return state.waiting + len((yield from desk.read(desk.layout.again)).values)


def stats(desk: Desk) -> Steps[WorkQueueStats]:
    """How many items are where. Reads all that are delayed or dead, but not what they hold."""
    ready = yield from waiting(desk)
    taken = len((yield from desk.read(desk.layout.claims)).values)
    delayed = yield from _count(desk, desk.layout.later)
    return WorkQueueStats(ready, taken, delayed, (yield from _count(desk, desk.layout.dead)))


def live_items(desk: Desk, limit: int) -> Steps[tuple[WorkItem, ...]]:
    """The first ``limit`` of those that are taken, that wait, and that are delayed."""
    layout = desk.layout
    found: list[WorkItem] = []
    for one, (key, stored) in attempts((yield from desk.read(layout.claims))).items():
        claim = Claim.decode(key, stored)
        found.append(_about(one, "taken", since=claim.since, token=claim.token))
    again = attempts((yield from desk.read(layout.again))).items()
    order = sorted((Again.decode(key, stored).due, one) for one, (key, stored) in again)
    found += (_about(one, "waiting") for _, one in order)
    state = yield from desk.state()
    numbers = range(state.head, state.tail.next)[: max(0, limit - len(found))]
    found += (_about(Attempt(ItemId(number), 0), "waiting") for number in numbers)
    for bucket in (yield from _buckets(desk, layout.later)):
        if len(found) >= limit:
            break
        listing = yield from desk.read(layout.later.folder(bucket))
        for one, (key, stored) in attempts(listing).items():
            found.append(_about(one, "delayed", due=Again.decode(key, stored).due))
    return (yield from _filled(desk, found[:limit]))


def dead_items(desk: Desk, limit: int) -> Steps[tuple[WorkItem, ...]]:
    """The first ``limit`` of the dead."""
    shelf = desk.layout.dead
    found: list[WorkItem] = []
    for bucket in (yield from _buckets(desk, shelf)):
        if len(found) >= limit:
            break
        for one, (key, stored) in attempts((yield from desk.read(shelf.folder(bucket)))).items():
            dead = Dead.decode(key, stored)
            found.append(_about(one, "dead", since=dead.at, reason=dead.reason))
    return (yield from _filled(desk, found[:limit]))


def worker_of(desk: Desk, id: ItemId) -> Steps[Contender | None]:
    """The contender of the worker that has an item; None where none has it."""
    found = attempts((yield from desk.read(desk.layout.claims)))
    claims = [Claim.decode(*found[one]) for one in found if one.id == id]
    workers = yield from desk.workers()
    return next((one for one in workers.contenders if any(c.is_of(one) for c in claims)), None)


def _about(
    attempt: Attempt,
    state: str,
    *,
    since: float | None = None,
    due: float | None = None,
    reason: str = "",
    token: int | None = None,
) -> WorkItem:
    """What is known of an item before it is read."""
    id, taken = attempt
    return WorkItem(str(id), state, taken, 0.0, b"", since, due, reason, token)


def _filled(desk: Desk, found: list[WorkItem]) -> Steps[tuple[WorkItem, ...]]:
    """What was ``found``, with what the items hold; without those that have gone meanwhile."""
    items: list[WorkItem] = []
    rest = iter(found)
    while some := list(islice(rest, _AT_ONCE)):
        keys = [desk.layout.item(ItemId.parse(one.id)) for one in some]
        read = lambda: all_of(map(desk.service.read, keys))  # noqa: B023, E731
        listings = yield from retried(read, desk.engine.timers)
        for one, key, listing in zip(some, keys, listings, strict=True):
            if (stored := listing.values.get(key)) is not None:
                item = Item.decode(key, stored)
                items.append(replace(one, put_at=item.put_at, data=item.data))
    return tuple(items)


def _count(desk: Desk, shelf: Shelf) -> Steps[int]:
    number = 0
    for bucket in (yield from _buckets(desk, shelf)):
        number += len((yield from desk.read(shelf.folder(bucket))).values)
    return number


def _buckets(desk: Desk, shelf: Shelf) -> Steps[list[str]]:
    listing = yield from desk.read(shelf.index)
    return sorted((key.rpartition("/")[2] for key in listing.values), key=_order)


def _order(bucket: str) -> tuple[int, ...]:
    return tuple(int(part) for part in bucket.split("."))
