"""A work queue as people see it, and what operators remove from it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from itertools import islice
from typing import Final

from coordlock.backend.data import Delete, Expect, Operation, Put
from coordlock.errors import NameConflict
from coordlock.kernel.retry import retried
from coordlock.model.contender import Contender
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import all_of
from coordlock.work.layout import LANES, NEVER, ItemId, Serial, ending
from coordlock.work.records import Content, Record, State, serials
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
    "waiting",
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
    """An item that was claimed or delayed: what is kept of it, and where."""

    one: Serial
    key: str
    record: Record
    state: str
    worker: Contender | None = None


def _taken(store: Store) -> Steps[list[_Found]]:
    """All that were claimed. Those whose worker has ended count as waiting, and as failed."""
    found = serials((yield from store.read(store.layout.claims)))
    contenders = (yield from store.workers()).contenders if found else ()
    workers = {(worker.key, worker.order): worker for worker in contenders}
    items = []
    for one, (key, stored) in found.items():
        claim = Record.decode(key, stored)
        worker = workers.get((claim.worker, claim.order))
        ended, state = worker is None, "taken" if worker else "waiting"
        record = replace(claim, deliveries=claim.deliveries + 1, failures=claim.failures + ended)
        items.append(_Found(one, key, record, state, worker))
    return sorted(items, key=lambda item: item.state)


def _kept(store: Store, since: float = 0.0, until: float = NEVER) -> Steps[list[_Found]]:
    """All that wait, are delayed, or dead, in the order in which they are due."""
    items, now = (yield from store.kept(until, since))[0], time.time()
    found = []
    for one, (key, record) in items.items():
        state = "dead" if record.reason else "waiting" if record.at <= now else "delayed"
        found.append(_Found(one, key, record, state))
    return sorted(found, key=lambda item: (item.state == "dead", item.record.at, item.one))


def waiting(store: Store) -> Steps[int]:
    """How many items may be taken now, but for those whose worker has ended."""
    state = yield from store.state()
    return state.waiting + len((yield from store.kept(time.time()))[0])


def stats(store: Store) -> Steps[WorkQueueStats]:
    """How many items are where. Reads the records of all that are not new, but no items."""
    new, count = (yield from store.state()).waiting, Counter[str]()
    for find in (_taken, _kept):
        count.update(item.state for item in (yield from find(store)))
    return WorkQueueStats(count["waiting"] + new, count["taken"], count["delayed"], count["dead"])


def live_items(store: Store, limit: int, taken: bool = True) -> Steps[tuple[ItemView, ...]]:
    """The first ``limit`` of those that are ``taken``, that wait, and that are delayed."""
    claimed = [item for item in (yield from _taken(store)) if taken or item.state != "taken"]
    others = yield from _kept(store, until=NEVER - 1)
    new = islice(_new_numbers((yield from store.state())), limit)
    found = [
        *claimed,
        *(item for item in others if item.state == "waiting"),
        *(_Found(Serial(ItemId(number)), "", Record(), "waiting") for number in new),
        *(item for item in others if item.state == "delayed"),
    ]
    return (yield from _viewed(store, found[:limit]))


def dead_items(store: Store, limit: int) -> Steps[tuple[ItemView, ...]]:
    """The first ``limit`` of the dead."""
    return (yield from _viewed(store, (yield from _kept(store, since=NEVER))[:limit]))


def taken_away(store: Store, id: ItemId) -> Steps[Contender | None]:
    """Keep the worker that has an item from ending it; its contender, which is to be evicted.

    The worker can't end the item once its claim was written again, so the contender serves no other
    item. None where no worker has the item.
    """
    while True:
        taken = yield from _taken(store)
        found = [(item.key, item.worker) for item in taken if item.one.id == id and item.worker]
        if not found:
            return None
        [(key, worker)] = found
        stored = (yield from store.read(key)).values.get(key)
        if stored is not None:
            if stored.version > 1:
                return worker
            yield from store.write([Expect(key, 1), Put(key, stored.data)])


def ready_again(store: Store, id: ItemId) -> Steps[None]:
    """Make a dead item ready. Raises LookupError."""
    found = serials((yield from store.read(store.layout.kept.dead(id))))
    for one, (key, stored) in found.items():
        if one.id == id:
            ready = Record(token=Record.decode(key, stored).token).keeping(store.layout, one)
            if (yield from store.write([*ending(key), *ready])) is not Outcome.REFUSED:
                return
    raise LookupError(f"no dead item {id} in the work queue {store.layout.name!r}")


def removed(store: Store, id: ItemId) -> Steps[bool]:
    """Remove an item that is not taken; whether it was there."""
    operations: tuple[Operation, ...] = ending(store.layout.item(id))
    if any(item.one.id == id and item.worker for item in (yield from _taken(store))):
        return False
    for item in (yield from _kept(store)):
        if item.one.id == id:  # in one step, so that no worker has claimed it meanwhile
            operations += ending(item.key)
    # Who claims a new item all the same finds none, and drops the claim.
    return (yield from store.write(operations)) is not Outcome.REFUSED


def purged(store: Store) -> Steps[int]:
    """Remove all items that wait, are delayed, or dead; how many."""
    layout, count = store.layout, 0
    state = yield from store.state()
    for lane in state.lanes:
        while waiting := min(lane.waiting(state.tail.next), _AT_ONCE):
            after = replace(lane, number=lane.number + waiting * LANES, version=lane.version + 1)
            numbers = range(lane.number, after.number, LANES)
            key = layout.lanes[lane.lane]
            operations: list[Operation] = [Expect(key, lane.version)]
            operations.append(Put(key, after.encode()))
            operations += (Delete(layout.item(ItemId(number))) for number in numbers)
            if (yield from store.bounded(store.write(operations))) is Outcome.MADE:
                count, lane = count + waiting, after
            else:  # others take from this lane, or purge it
                lane = (yield from store.bounded(store.state())).lanes[lane.lane]
    for item in (yield from store.bounded(_kept(store))):
        operations = [*ending(item.key), Delete(layout.item(item.one.id))]
        count += (yield from store.bounded(store.write(operations))) is Outcome.MADE
    return count


def unlisted(store: Store) -> Steps[bool]:
    """Delete the mark of an empty queue; whether it was there.

    Clients remember the versions of the state, so that stays, and grows: a queue made anew with
    smaller versions would hide items from them. The tail says that the mark has gone, and the next
    put makes it again: consumers that wait go on. Raises `NameConflict`.
    """
    layout, is_unclear = store.layout, False
    while True:
        state = yield from store.state()
        mark = (yield from store.read(layout.mark)).values.get(layout.mark)
        if mark is None:
            return is_unclear
        if any(astuple((yield from stats(store)))):
            advice = "take its items or purge them first"
            what = f"the work queue {layout.name!r} was not deleted, because it has items: {advice}"
            raise NameConflict(layout.name, "deleted", "work queue", "", what)
        # No item has come since the state was read, or the tail has another version.
        operations: list[Operation] = [
            Expect(layout.tail, state.tail_version),
            Put(layout.tail, replace(state.tail, is_listed=False).encode()),
            Expect(layout.mark, mark.version),
            Delete(layout.mark),
        ]
        outcome = yield from store.write(operations)
        if outcome is Outcome.MADE:
            return True
        is_unclear = is_unclear or outcome is Outcome.UNCLEAR


def _new_numbers(state: State) -> Iterator[int]:
    """The numbers of the items that nobody has claimed, in order."""
    heads = {lane.lane: lane.number for lane in state.lanes}
    numbers = range(min(heads.values()), state.tail.next)
    return (number for number in numbers if number >= heads[number % LANES])


def _viewed(store: Store, found: Iterable[_Found]) -> Steps[tuple[ItemView, ...]]:
    """What was ``found``, with what the items hold; without those that have gone meanwhile."""
    items: list[ItemView] = []
    rest = iter(found)
    while some := list(islice(rest, _AT_ONCE)):
        keys = [store.layout.item(item.one.id) for item in some]
        read = lambda: all_of(map(store.backend.read, keys))  # noqa: B023, E731
        listings = yield from store.bounded(retried(read, store.engine.timers))
        for item, key, listing in zip(some, keys, listings, strict=True):
            if (stored := listing.values.get(key)) is not None:
                items.append(_view(item, Content.decode(key, stored)))
    return tuple(items)


def _view(item: _Found, content: Content) -> ItemView:
    record, worker, state = item.record, item.worker, item.state
    return ItemView(
        str(item.one.id),
        state,
        record.deliveries,
        record.failures,
        content.put_at,
        content.data,
        worker=str(worker.described or "") if worker else "",
        since=record.at if state in ("taken", "dead") else None,
        due=record.at if state == "delayed" else None,
        reason=record.reason,
        token=record.token if worker else None,
    )
