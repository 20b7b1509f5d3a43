"""Converting the mode of a contender that is granted, in its place: what to do next. No I/O.

A contender that converts publishes each step: first its target, then which contenders behind it go
first, at last the new mode. In between it reads its queue. Why two that conflict are never granted:

* A contender behind it reads the queue after it has entered, and so sees the target, unless it
  entered before the target was published. In that case the converting contender sees it, because it
  reads the queue after publishing.
* If a contender that it sees may have been granted, the conversion waits for it, and publishes
  that. Otherwise that contender learns from the published answer that it has to wait, whatever
  leaves meanwhile. Without the answer both would wait for each other, or neither would.
* Contenders before it never wait for it. So it waits for all of them that conflict, granted or not:
  they need nothing that it holds.
* Of two that convert, at least one reads the queue after both have published. If each waits for the
  other's mode, one gives up. If one waits for the other's mode, it goes second. If neither does and
  their targets conflict, one takes its target back until the other has ended: the one that has
  decided nothing, else the one behind.
* A conversion to a weaker mode waits for no contender. A contender that it lets in reads the queue
  anew, and waits for all conflicting contenders before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from coordlock.model.admission import holders, keeps_out
from coordlock.model.claim import Convertible, Mode, Permit
from coordlock.model.contender import Contender, Snapshot

__all__ = [
    "Decision",
    "MutualWait",
    "Publish",
    "WaitFor",
    "decide",
    "in_the_way",
    "is_weaker",
    "waited_for",
]


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish ``claim``, then read the queue, unless that ends the conversion."""

    claim: Convertible


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Wait until one of ``contenders`` has left or published something else, then read again."""

    contenders: tuple[Contender, ...]


@dataclass(frozen=True, slots=True)
class MutualWait:
    """Give up: ``other`` converts, too, and each waits for what the other has."""

    other: Contender


Decision = Publish | WaitFor | MutualWait


def is_weaker(target: Mode, mode: Mode) -> bool:
    """Whether ``target`` conflicts with nothing that ``mode`` does not conflict with."""
    return mode.joined(target) is mode


def decide(snapshot: Snapshot, me: Contender, target: Mode) -> Decision:
    """The next step of ``me``, which is granted and claims what it last published, to ``target``.

    The snapshot must omit none, and must have been read after ``me`` published that.
    """
    mine = me.claim
    assert isinstance(mine, Convertible)
    done = Publish(Convertible(target, update=mine.update))
    if is_weaker(target, mine.mode):
        return done
    if mine.target not in (None, target):  # an earlier conversion could not take it back
        return Publish(replace(mine, target=None, yields_to=None))
    others = [one for one in snapshot.contenders if one.key != me.key]
    gives_up: set[str] = set()
    for other, theirs, wanted in _converting(others):
        waits_for_it = target.conflicts(theirs.mode)
        it_waits = wanted.conflicts(mine.mode)
        if waits_for_it and it_waits:
            if mine.target is None or other.order < me.order:
                return MutualWait(other)
            gives_up.add(other.key)  # when it sees this one
        settled = waits_for_it or it_waits or not target.conflicts(wanted)
        if settled or mine.yields_to is not None:
            continue
        if mine.target is None and _is_stuck_behind(snapshot, (other,), me, gives_up):
            return MutualWait(other)
        if mine.target is None or (theirs.yields_to is None and me.order < other.order):
            return WaitFor((other,))
        return Publish(replace(mine, target=None))
    if mine.target is None:
        return Publish(replace(mine, target=target))
    if mine.yields_to is None:
        in_the_way = waited_for(snapshot, me)
        if not in_the_way:
            return done
        rivals = [one for one, _, _ in _converting(others) if one.key not in gives_up]
        if rivals and _is_stuck_behind(snapshot, in_the_way, me, gives_up):
            return MutualWait(rivals[0])
        return Publish(replace(mine, yields_to=tuple(_ranges(snapshot, in_the_way, me))))
    left = waited_for(snapshot, me)
    if not left:
        return done
    # One of those that must all leave is enough, and any that may come to convert against it.
    watched = [one for one in left[:-1] if isinstance(one.claim, Convertible)]
    return WaitFor((*watched, left[-1]))


def waited_for(snapshot: Snapshot, me: Contender) -> tuple[Contender, ...]:
    """The contenders that must leave, or claim less, before the conversion of ``me`` is done."""
    mine = me.claim
    assert isinstance(mine, Convertible)
    assert mine.target is not None
    # Until it has decided, those that may be granted go first.
    admitted = holders(snapshot) if mine.yields_to is None else ()
    return tuple(
        one
        for one in snapshot.contenders
        if one.key != me.key
        and _mode_of(one).conflicts(mine.target)
        and (one.order < me.order or one.id in admitted or mine.lets_pass(one.order))
    )


def in_the_way(snapshot: Snapshot, me: Contender, target: Mode) -> tuple[Contender, ...]:
    """The contenders that ``me`` would wait for, if it began to convert to ``target`` now."""
    mine = me.claim
    assert isinstance(mine, Convertible)
    beginning = replace(mine, target=target, yields_to=None)
    return waited_for(snapshot, replace(me, claim=beginning))


def _is_stuck_behind(
    snapshot: Snapshot, ahead: Iterable[Contender], me: Contender, gives_up: set[str]
) -> bool:
    """Whether one of ``ahead`` waits for ``me``, directly or not, so ``me`` must not wait for it.

    Contenders whose keys are in ``gives_up`` don't count.
    """
    admitted = holders(snapshot)
    seen = set(gives_up)
    left = list(ahead)
    while left:
        one = left.pop()
        if one.key == me.key:
            return True
        if one.key in seen:
            continue
        seen.add(one.key)
        if isinstance(one.claim, Convertible) and one.claim.target is not None:
            left += waited_for(snapshot, one)
        elif one.id not in admitted:
            left += [other for other in snapshot.before(one) if keeps_out(other, one)]
    return False


def _converting(others: Sequence[Contender]) -> Iterator[tuple[Contender, Convertible, Mode]]:
    """Those that convert, with what they claim and their targets."""
    for one in others:
        if isinstance(one.claim, Convertible) and one.claim.target is not None:
            yield one, one.claim, one.claim.target


def _ranges(
    snapshot: Snapshot, in_the_way: Sequence[Contender], me: Contender
) -> Iterator[tuple[int, int]]:
    """The orders of those ``in_the_way`` behind ``me``, as ranges without other contenders."""
    wanted = {one.key for one in in_the_way}
    first = last = 0
    for one in snapshot.contenders:
        if one.order > me.order and one.key in wanted:
            first, last = first or one.order, one.order
        elif first:
            yield first, last
            first = 0
    if first:
        yield first, last


def _mode_of(one: Contender) -> Mode:
    """The mode that it excludes others by now, whatever its target."""
    claim = one.claim
    if isinstance(claim, Convertible):
        return claim.mode
    return Mode.EX if isinstance(claim, Permit) else claim
