"""A work queue as people see it, and what operators remove from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from itertools import islice
from typing import Any, Final

from coordlock.backend.data import Delete, Expect, Listing, Operation, Put, VersionedValue
from coordlock.errors import NameConflict
from coordlock.kernel.retry import retried
from coordlock.model.contender import Contender
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import all_of
from coordlock.work.chores import returning
from coordlock.work.layout import LANES, ItemId, Serial, ending
from coordlock.work.records import (
    Claim,
    Content,
    Dead,
    Retry,
    State,
    serials,
)
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


_Claims = list[tuple[Serial, Claim, Contender | None]]


def _claims(store: Store) -> Steps[_Claims]:
    """All claims, each with its worker; with None where that has ended."""
    found = serials((yield from store.read(store.layout.claims)))
    workers = (yield from store.workers()).contenders if found else ()
    standing = {(one.key, one.order): one for one in workers}
    claims = ((one, Claim.decode(key, stored)) for one, (key, stored) in found.items())
    return [(one, claim, standing.get((claim.worker, claim.order))) for one, claim in claims]


def waiting(store: Store) -> Steps[int]:
    """How many items may be taken now, but for those whose worker has ended."""
    state = yield from store.state()
    return state.waiting + len((yield from store.read(store.layout.retries)).values)


def stats(store: Store) -> Steps[WorkQueueStats]:
    """How many items are where. Reads the records of all that are not new, but no items."""
    ready = yield from waiting(store)
    workers = [worker for _, _, worker in (yield from _claims(store))]
    void = workers.count(None)
    delayed = sum(len(one.values) for one in (yield from _delayed(store)))
    dead = sum(len(one.values) for one in (yield from _dead(store)))
    return WorkQueueStats(ready + void, len(workers) - void, delayed, dead)


def live_items(store: Store, limit: int, taken: bool = True) -> Steps[tuple[ItemView, ...]]:
    """The first ``limit`` of those that are ``taken``, that wait, and that are delayed."""
    items: list[ItemView] = []
    void: list[ItemView] = []
    for one, claim, worker in (yield from _claims(store)):
        if worker is None:
            id, failures = str(one.id), claim.failures + 1
            void.append(ItemView(id, "waiting", claim.deliveries + 1, failures))
        elif taken:
            who = str(worker.described or "")
            more = {"worker": who, "since": claim.since, "token": claim.token}
            items.append(_about(one, "taken", claim, **more))
    items += void
    retries = serials((yield from store.read(store.layout.retries)))
    items += (_about(one, "waiting", retry) for retry, one in _by_time(retries))
    new = _new_numbers((yield from store.state()))
    items += (
        ItemView(str(number), "waiting", 0, 0) for number in islice(new, max(0, limit - len(items)))
    )
    if len(items) < limit:
        delayed = _by_time(serials(*(yield from _delayed(store))))
        items += (_about(one, "delayed", retry, due=retry.due) for retry, one in delayed)
    return (yield from _filled(store, items[:limit]))


def dead_items(store: Store, limit: int) -> Steps[tuple[ItemView, ...]]:
    """The first ``limit`` of the dead."""
    found = serials(*(yield from _dead(store))).items()
    dead = [(one, Dead.decode(key, stored)) for one, (key, stored) in islice(found, limit)]
    items = [_about(one, "dead", dead, since=dead.at, reason=dead.reason) for one, dead in dead]
    return (yield from _filled(store, items))


def _claim_of(store: Store, id: ItemId) -> Steps[tuple[str, Contender] | None]:
    """The key of an item's claim, and its worker's contender; None where no worker has the item."""
    for one, _, worker in (yield from _claims(store)):
        if one.id == id and worker is not None:
            return store.layout.claim(one), worker
    return None


def taken_away(store: Store, id: ItemId) -> Steps[Contender | None]:
    """Keep the worker that has an item from ending it; its contender, which is to be evicted.

    The worker can't end the item once its claim was written again, so the contender serves no other
    item. None where no worker has the item.
    """
    while (found := (yield from _claim_of(store, id))) is not None:
        key, worker = found
        stored = (yield from store.read(key)).values.get(key)
        if stored is not None:
            if stored.version > 1:
                return worker
            yield from store.write([Expect(key, 1), Put(key, stored.data)])
    return None


def ready_again(store: Store, id: ItemId) -> Steps[None]:
    """Make a dead item ready. Raises LookupError."""
    found = serials((yield from store.read(store.layout.dead.folder_of(id))))
    for one, (key, stored) in found.items():
        if one.id == id:
            # A serial of its own: an item that was buried while ready has used this one's key.
            retry = Retry(token=Dead.decode(key, stored).token)
            ready = returning(store.layout, one.next, retry)
            if (yield from store.write([*ending(key), *ready])) is not Outcome.REFUSED:
                return
    raise LookupError(f"no dead item {id} in the work queue {store.layout.name!r}")


def removed(store: Store, id: ItemId) -> Steps[bool]:
    """Remove an item that is not taken; whether it was there."""
    operations: tuple[Operation, ...] = ending(store.layout.item(id))
    if (yield from _claim_of(store, id)) is not None:
        return False
    for one, (key, _) in (yield from _put_aside(store)).items():
        if one.id == id:  # in one step, so that no worker has claimed it meanwhile
            operations += ending(key)
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
    for one, (key, _) in (yield from store.bounded(_put_aside(store))).items():
        operations = [*ending(key), Delete(layout.item(one.id))]
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


_Found = dict[Serial, tuple[str, VersionedValue]]


def _by_time(found: _Found) -> list[tuple[Retry, Serial]]:
    """What was given back or delayed, in the order in which it is, or was, due."""
    read = ((Retry.decode(key, stored), one) for one, (key, stored) in found.items())
    return sorted(read, key=lambda two: (two[0].due, two[1]))


def _put_aside(store: Store) -> Steps[_Found]:
    """All items that are ready again, delayed, or dead: what their keys hold."""
    retries = yield from store.read(store.layout.retries)
    return serials(retries, *(yield from _delayed(store)), *(yield from _dead(store)))


def _delayed(store: Store) -> Steps[list[Listing]]:
    """The folders of the delayed items."""
    delayed, found = store.layout.delayed, list[Listing]()
    for hour in _names((yield from store.read(delayed.hours))):
        for slot in _names((yield from store.read(delayed.slots(hour)))):
            found.append((yield from store.read(delayed.folder(slot))))
    return found


def _dead(store: Store) -> Steps[list[Listing]]:
    """The folders of the dead items."""
    dead, found = store.layout.dead, list[Listing]()
    for bucket in _names((yield from store.read(dead.index))):
        found.append((yield from store.read(dead.folder(bucket))))
    return found


def _names(folder: Listing) -> list[str]:
    """What the keys of ``folder`` are called."""
    return [key.rpartition("/")[2] for key in folder.values]


def _new_numbers(state: State) -> Iterator[int]:
    """The numbers of the items that nobody has claimed, in order."""
    heads = {lane.lane: lane.number for lane in state.lanes}
    numbers = range(min(heads.values()), state.tail.next)
    return (number for number in numbers if number >= heads[number % LANES])


def _about(one: Serial, state: str, record: Retry | Claim | Dead, **more: Any) -> ItemView:
    """What is known of an item before it is read."""
    delivered = record.deliveries + (state == "taken")
    return ItemView(str(one.id), state, delivered, record.failures, **more)


def _filled(store: Store, found: Iterable[ItemView]) -> Steps[tuple[ItemView, ...]]:
    """What was ``found``, with what the items hold; without those that have gone meanwhile."""
    items: list[ItemView] = []
    rest = iter(found)
    while some := list(islice(rest, _AT_ONCE)):
        keys = [store.layout.item(ItemId.parse(one.id)) for one in some]
        read = lambda: all_of(map(store.backend.read, keys))  # noqa: B023, E731
        listings = yield from store.bounded(retried(read, store.engine.timers))
        for one, key, listing in zip(some, keys, listings, strict=True):
            if (stored := listing.values.get(key)) is not None:
                content = Content.decode(key, stored)
                items.append(replace(one, put_at=content.put_at, data=content.data))
    return tuple(items)
