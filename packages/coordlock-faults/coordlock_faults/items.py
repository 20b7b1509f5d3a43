"""Work queues: every item is done, once, and by whoever had it last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.call import Call
from coordlock_faults.events import Act, Raised
from coordlock_faults.history import History
from coordlock_faults.violation import Violation, together

__all__ = ["DoneTwice", "ForeignItem", "LateDone", "LostItem", "Miscounted", "Overtaking", "items"]

#: An error that says that the item was not the worker's any more, at the latest when it came.
_REFUSED = "LockLost"

#: Several consumers may begin an item before one whose number is up to this much smaller.
_FAR = 2000


@dataclass(frozen=True, slots=True)
class LostItem(Violation):
    """An item that was put is gone, and nobody has done it."""


@dataclass(frozen=True, slots=True)
class DoneTwice(Violation):
    """An item was accepted as done twice, or was taken when it was done."""


@dataclass(frozen=True, slots=True)
class LateDone(Violation):
    """A worker's word on an item was taken when another one had the item."""


@dataclass(frozen=True, slots=True)
class ForeignItem(Violation):
    """An item was taken that nobody had put, or twice what was put once."""


@dataclass(frozen=True, slots=True)
class Miscounted(Violation):
    """Of two deliveries of an item, the later one has no greater number, or no greater token."""


@dataclass(frozen=True, slots=True)
class Overtaking(Violation):
    """An item was taken before one that had been put long before it."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A call that took an item; ``since`` is when it was, ``at`` when it had returned."""

    call: Call
    since: int
    at: int
    id: int
    delivery: int
    mark: int


def items(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """What is put is done, whatever the faults.

    * Every item whose put has returned is done, or is still there in the end, as the dead are; of
      one whose worker has said so without an answer, nobody knows.
    * No item is accepted as done twice, none is taken that was done, and no word of a worker is
      accepted when another one had taken the item before that was said.
    * What is taken was put, under the id that the put has returned; and once.
    * Deliveries of an item have numbers that grow, and tokens that grow with them.
    * Of two items that were put one after the other, without a delay, and some thousands apart, the
      first delivery of the second does not come before that of the first.
    """
    queues = sorted({one.of for one in history.called(Act.PUT)})
    found = (violation for of in queues for violation in _in_queue(history, of))
    return list(islice(found, bounds.findings))


def _in_queue(history: History, of: str) -> Iterator[Violation]:
    calls = [one for one in history.called(*Act) if one.of == of]
    puts = {one.passed[0]: one for one in calls if one.act is Act.PUT}
    taken: dict[int, list[_Taken]] = {}
    for call in calls:
        if call.act is Act.TAKE and call.returned is not None:
            id, delivery, mark = call.returned.values
            one = _Taken(call, call.called.at, call.returned.at, id, delivery, mark)
            taken.setdefault(id, []).append(one)
    ends: dict[int, list[Call]] = {}
    for call in calls:
        if call.act in (Act.DONE, Act.NACK):
            ends.setdefault(call.passed[0], []).append(call)
    yield from _foreign(puts, taken)
    for id, deliveries in taken.items():
        deliveries.sort(key=lambda one: one.delivery)
        yield from _counted(history, deliveries)
        yield from _accepted(deliveries, ends.get(id, []))
    yield from _lost(history, of, puts, taken, ends)
    yield from _order(puts, taken)


def _foreign(puts: dict[int, Call], taken: dict[int, list[_Taken]]) -> Iterator[Violation]:
    ids: dict[int, _Taken] = {}
    for deliveries in taken.values():
        for one in deliveries:
            put = puts.get(one.mark)
            if put is None or put.called.at > one.at:
                what = f"{one.mark} was taken as item {one.id}, and nobody had put it"
                yield ForeignItem(what, together(put, one.call))
                continue
            first = ids.setdefault(one.mark, one)
            known = first.id if put.returned is None else put.returned.values[0]
            if one.id != known:
                what = f"{one.mark} was put once, and is item {known} and item {one.id}"
                yield ForeignItem(what, together(put, first.call, one.call))


def _counted(history: History, deliveries: list[_Taken]) -> Iterator[Violation]:
    for before, after in pairwise(deliveries):
        tokens = [
            history.attempts[one.call.called.attempt].token or 0
            for one in (before, after)
            if one.call.called.attempt
        ]
        if before.delivery == after.delivery or after.at < before.since or tokens != sorted(tokens):
            what = (
                f"item {after.id} was taken as delivery {before.delivery} and as delivery "
                f"{after.delivery}, with the tokens {tokens}"
            )
            yield Miscounted(what, together(before.call, after.call))


def _accepted(deliveries: list[_Taken], ends: list[Call]) -> Iterator[Violation]:
    by_name = {one.call.called.attempt: one for one in deliveries if one.call.called.attempt}
    done = [one for one in ends if one.act is Act.DONE and one.returned]
    if len(done) > 1:
        yield DoneTwice(f"item {deliveries[0].id} was done {len(done)} times", together(*done))
    for end in (one for one in ends if one.returned):
        mine = by_name.get(end.called.attempt)
        late = [one for one in deliveries if mine and _takes_over(one, mine, end)]
        if late:
            what = f"item {late[0].id} was {end.act.value} by {end.process}, and another had it"
            yield LateDone(what, together(end, late[0].call))
    for end in done:
        after = [one for one in deliveries if end.returned and one.since > end.returned.at]
        if after:
            what = f"item {after[0].id} was taken when it was done"
            yield DoneTwice(what, together(end, after[0].call))


def _takes_over(other: _Taken, mine: _Taken, end: Call) -> bool:
    """Whether ``other`` had the item already when ``end`` was said by who had taken ``mine``."""
    return other.delivery > mine.delivery and other.at < end.called.at


def _lost(
    history: History,
    of: str,
    puts: dict[int, Call],
    taken: dict[int, list[_Taken]],
    ends: dict[int, list[Call]],
) -> Iterator[Violation]:
    left = set(history.presents[of].values) if of in history.presents else set[int]()
    for mark, put in puts.items():
        if put.returned is None or mark in left:
            continue
        deliveries = taken.get(put.returned.values[0], [])
        if not any(_may_be_done(end, deliveries) for end in ends.get(put.returned.values[0], [])):
            what = f"{mark} was put into {of}, and is neither done nor there"
            yield LostItem(what, together(put, *(one.call for one in deliveries)))


def _may_be_done(end: Call, deliveries: list[_Taken]) -> bool:
    if end.act is not Act.DONE:
        return False
    refused = isinstance(end.answer, Raised) and end.answer.error == _REFUSED
    mine = [one for one in deliveries if one.call.called.attempt == end.called.attempt]
    return not (refused and any(_takes_over(one, it, end) for it in mine for one in deliveries))


def _order(puts: dict[int, Call], taken: dict[int, list[_Taken]]) -> Iterator[Violation]:
    firsts = [
        (one, puts[one.mark])
        for deliveries in taken.values()
        for one in deliveries
        if one.delivery == 1 and one.mark in puts and not puts[one.mark].passed[1]
    ]
    # In the order in which they were asked for: of all that had been taken by then, the one that
    # was put last.
    done = sorted(firsts, key=lambda pair: pair[0].at)
    place, last = 0, -1
    newest: tuple[_Taken, Call] | None = None
    for one, put in sorted(firsts, key=lambda pair: pair[0].since):
        while place < len(done) and done[place][0].at < one.since:
            if done[place][1].called.at > last:
                newest, last = done[place], done[place][1].called.at
            place += 1
        if newest is None or put.returned is None or newest[0].id - one.id < _FAR:
            continue
        if put.returned.at < last:
            what = f"item {newest[0].id} was taken before item {one.id}, and had been put after it"
            yield Overtaking(what, together(put, newest[1], newest[0].call, one.call))
