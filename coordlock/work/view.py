"""A work queue as people see it, and what operators remove from it."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Final

from coordlock.backend.data import Delete, Expect, Operation, Put
from coordlock.errors import NameConflict
from coordlock.kernel.retry import retried
from coordlock.model.contender import Contender
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import all_of
from coordlock.work.layout import OLD, Entry, ending, later_than_now
from coordlock.work.records import Claim, Content, Ended, entry_in, reason_in
from coordlock.work.store import Outcome, Store

__all__ = [
    "ItemView",
    "WorkQueueStats",
    "dead_items",
    "live_items",
    "purged",
    "ready_again",
    "removed",
    "stats",
    "taken_away",
    "unlisted",
]

#: How many items are read, or removed, at once.
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class ItemView:
    """An item of a work queue, as it was when it was read.

    Attributes:
        id: what `put` returned.
        state: ``"waiting"`` to be taken, ``"taken"``, ``"delayed"``, or ``"dead"``.
        deliveries: how often it was handed to a worker.
        failures: how often it was given back as failed, or its worker ended at work.
        put_at: when it was put, in seconds since 1970, by the clock of its producer.
        data: what was put.
        worker: who works on a taken one: host, process id and label; "" for others.
        since: when it was taken, or died, in seconds since 1970; None for others.
        due: when a delayed one may be taken; None for others.
        reason: why a dead one is dead; "" for others.
        token: the fencing token of a taken one; None for others.
    """

    id: str
    state: str
    deliveries: int
    failures: int
    put_at: float = 0.0
    data: bytes = b""
    worker: str = ""
    since: float | None = None
    due: float | None = None
    reason: str = ""
    token: int | None = None


@dataclass(frozen=True, slots=True)
class WorkQueueStats:
    """How many items of a work queue are where; each was counted at a moment of its own.

    Attributes:
        waiting: ready to be taken. Those whose worker has ended are, too.
        taken: at work.
        delayed: waiting for their time.
        dead: taken by nobody any more.
    """

    waiting: int
    taken: int
    delayed: int
    dead: int


@dataclass(frozen=True, slots=True)
class _Found:
    """An entry, and where it is."""

    entry: Entry
    key: str
    state: str
    worker: Contender | None = None


def _taken(store: Store) -> Steps[list[_Found]]:
    """All that were claimed. Those whose worker has ended count as waiting, and as failed."""
    found = (yield from store.read(store.layout.claims)).values
    contenders = (yield from store.workers()).contenders if found else ()
    workers = {Claim.of(worker): worker for worker in contenders}
    items = []
    for key, stored in found.items():
        claim, worker = entry_in(key), workers.get(Claim.decode(key, stored))
        failures = claim.failures + (worker is None)
        entry = claim._replace(deliveries=claim.deliveries + 1, failures=failures)
        items.append(_Found(entry, key, "taken" if worker else "waiting", worker))
    return sorted(items, key=lambda item: (item.state, item.entry.number))


def _ready(store: Store, first: int | None = None) -> Steps[list[_Found]]:
    """The first entries, or all, that wait or are delayed, in the order in which they are due."""
    folder, later = store.layout.ready, later_than_now()
    names = yield from store.names(folder, first, OLD)
    return [
        _Found(entry_in(folder + name), folder + name, "waiting" if name < later else "delayed")
        for name in names
    ]


def _dead(store: Store, first: int | None = None) -> Steps[list[_Found]]:
    """The first dead entries, or all, in the order in which they died."""
    folder = store.layout.dead
    names = yield from store.names(folder, first)
    return [_Found(entry_in(folder + name), folder + name, "dead") for name in names]


def stats(store: Store) -> Steps[WorkQueueStats]:
    """How many items are where. Reads all entries, but no items."""
    claimed = Counter(item.state for item in (yield from _taken(store)))
    ready = yield from store.names(store.layout.ready)
    due = bisect(ready, later_than_now())
    dead = yield from store.names(store.layout.dead)
    waiting, delayed = claimed["waiting"] + due, len(ready) - due
    return WorkQueueStats(waiting, claimed["taken"], delayed, len(dead))


def live_items(store: Store, limit: int, taken: bool = True) -> Steps[tuple[ItemView, ...]]:
    """The first ``limit`` of those that are ``taken``, that wait, and that are delayed."""
    claimed = [item for item in (yield from _taken(store)) if taken or item.state != "taken"]
    ready = yield from _ready(store, limit)
    ready.sort(key=lambda item: (item.state == "delayed", not item.entry.is_old))
    found = [*claimed, *ready]
    return (yield from _viewed(store, found[:limit]))


def dead_items(store: Store, limit: int) -> Steps[tuple[ItemView, ...]]:
    """The first ``limit`` of the dead."""
    return (yield from _viewed(store, (yield from _dead(store, limit))))


def taken_away(store: Store, number: int) -> Steps[Contender | None]:
    """Keep the worker that has an item from ending it; its contender, which is to be evicted.

    The worker can't end the item once its claim was written again, so the contender serves no other
    item. None where no worker has the item.
    """
    while True:
        taken = yield from _taken(store)
        found = [item for item in taken if item.entry.number == number and item.worker]
        if not found:
            return None
        [item] = found
        stored = (yield from store.read(item.key)).values.get(item.key)
        if stored is not None:
            if stored.version > 1:
                return item.worker
            yield from store.write([Expect(item.key, 1), Put(item.key, stored.data)])


def ready_again(store: Store, number: int) -> Steps[None]:
    """Make a dead item ready. Raises LookupError."""
    for item in (yield from _dead(store)):
        if item.entry.number == number:
            entry = item.entry._replace(at=0, deliveries=0, failures=0)
            operations = *ending(item.key), *Ended(entry, "").keeping(store.layout)
            if (yield from store.write(operations)) is not Outcome.REFUSED:
                return
    raise LookupError(f"no dead item {number} in the work queue {store.layout.name!r}")


def removed(store: Store, number: int) -> Steps[bool]:
    """Remove an item that is not taken; whether it was there."""
    for find in (_taken, _ready, _dead):
        for item in (yield from find(store)):
            if item.entry.number == number and not item.worker:
                return (yield from _removal(store, [item])) > 0
    return False


def purged(store: Store) -> Steps[int]:
    """Remove all items that wait, are delayed, or dead; how many."""
    count = 0
    for find in (_ready, _dead):
        for items in _some((yield from store.bounded(find(store)))):
            count += yield from store.bounded(_removal(store, items))
    return count


def _some(found: list[_Found]) -> Iterator[list[_Found]]:
    return (found[start : start + _AT_ONCE] for start in range(0, len(found), _AT_ONCE))


def _removal(store: Store, items: list[_Found]) -> Steps[int]:
    """Remove ``items``; how many were where they were found, all or one by one."""
    operations: list[Operation] = []
    for item in items:
        operations += *ending(item.key), Delete(store.layout.item(item.entry.number))
    if (yield from store.write(operations)) is not Outcome.REFUSED:
        return len(items)
    count = 0
    for item in items if len(items) > 1 else ():
        count += yield from _removal(store, [item])
    return count


def unlisted(store: Store) -> Steps[bool]:
    """Delete the mark of an empty queue; whether it was there.

    The tail stays, so that no number is used again. The next put makes the mark again: consumers
    that wait go on. Raises `NameConflict`.
    """
    layout, is_unclear = store.layout, False
    while True:
        tail = yield from store.tail()
        mark = (yield from store.read(layout.mark)).values.get(layout.mark)
        if mark is None:
            return is_unclear
        if any(astuple((yield from stats(store)))):
            advice = "take its items or purge them first"
            what = f"the work queue {layout.name!r} was not deleted, because it has items: {advice}"
            raise NameConflict(layout.name, "deleted", "work queue", "", what)
        # No item has come since the tail was read, or it has another version.
        outcome = yield from store.write(
            [Expect(layout.tail, tail.version), *ending(layout.mark, mark.version)]
        )
        if outcome is Outcome.MADE:
            return True
        is_unclear = is_unclear or outcome is Outcome.UNCLEAR


def _viewed(store: Store, found: list[_Found]) -> Steps[tuple[ItemView, ...]]:
    """What was ``found``, with what the items hold; without those that have gone meanwhile."""
    items: list[ItemView] = []
    for some in _some(found):
        keys = [store.layout.item(item.entry.number) for item in some]
        keys += [item.key for item in some if item.state == "dead"]
        read = lambda: all_of(map(store.backend.read, keys))  # noqa: B023, E731
        listings = yield from store.bounded(retried(read, store.engine.timers))
        values = {key: stored for listing in listings for key, stored in listing.values.items()}
        for item in some:
            key, is_dead = store.layout.item(item.entry.number), item.state == "dead"
            if key in values and (not is_dead or item.key in values):
                reason = reason_in(item.key, values[item.key]) if is_dead else ""
                items.append(_view(item, Content.decode(key, values[key]), reason))
    return tuple(items)


def _view(item: _Found, content: Content, reason: str) -> ItemView:
    entry, worker, state = item.entry, item.worker, item.state
    return ItemView(
        entry.id,
        state,
        entry.deliveries,
        entry.failures,
        content.put_at,
        content.data,
        worker=str(worker.described or "") if worker else "",
        since=entry.at / 1000 if state in ("taken", "dead") else None,
        due=entry.at / 1000 if state == "delayed" else None,
        reason=reason,
        token=entry.token if worker else None,
    )
