"""Upgrading a contender that is granted, in its place: what to do next. No I/O.

An upgrade goes from mode PR to EX. It publishes each step: first its target, then which contenders
behind it go first, at last the new mode. In between it reads its queue. Upgradeable contenders
exclude each other, so at most one in a queue upgrades. Why two that conflict are never granted:

* A contender behind it reads the queue after it has entered, and so sees the target, unless it
  entered before the target was published. In that case the upgrading contender sees it, because it
  reads the queue after publishing.
* If a contender that it sees may have been granted, the upgrade waits for it, and publishes
  that. Otherwise that contender learns from the published answer that it has to wait, whatever
  leaves meanwhile. Without the answer both would wait for each other, or neither would.
* Contenders before it never wait for it. So it waits for all of them that conflict, granted or not:
  they need nothing that it holds.
* A downgrade waits for no contender. A contender that it lets in reads the queue anew, and waits
  for all conflicting contenders before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from coordlock.model.admission import holders
from coordlock.model.claim import Convertible, Mode, Permit
from coordlock.model.contender import Contender, Snapshot

__all__ = ["blockers_to_begin", "decide", "upgrade_blockers"]


def decide(snapshot: Snapshot, me: Contender) -> Convertible | Contender:
    """The next step of ``me``, which is granted and claims what it last published, to mode EX.

    It is the claim to publish, or the contender for whose departure to wait. Then the queue is read
    again, unless that claim ends the upgrade. The snapshot must omit none, and must have been read
    after ``me`` published what it claims.
    """
    mine = me.claim
    assert isinstance(mine, Convertible)
    if mine.mode is not Mode.EX:  # else the way back from an earlier one was not published
        if mine.target is None:
            return replace(mine, target=Mode.EX)
        if left := upgrade_blockers(snapshot, me):
            if mine.yields_to is not None:
                return left[-1]
            return replace(mine, yields_to=tuple(_ranges(snapshot, left, me)))
    return Convertible(Mode.EX)


def upgrade_blockers(snapshot: Snapshot, me: Contender) -> tuple[Contender, ...]:
    """The contenders that must leave before the upgrade of ``me`` is done."""
    mine = me.claim
    assert isinstance(mine, Convertible)
    assert mine.target is not None
    # Until it has decided, those that may be granted go first.
    admitted = holders(snapshot) if mine.yields_to is None else ()
    return tuple(
        contender
        for contender in snapshot.contenders
        if contender.key != me.key
        and _mode_of(contender).conflicts(mine.target)
        and (
            contender.order < me.order
            or contender.id in admitted
            or mine.lets_pass(contender.order)
        )
    )


def blockers_to_begin(snapshot: Snapshot, me: Contender) -> tuple[Contender, ...]:
    """The contenders that ``me`` would wait for, if it began to upgrade now."""
    mine = me.claim
    assert isinstance(mine, Convertible)
    beginning = replace(mine, target=Mode.EX, yields_to=None)
    return upgrade_blockers(snapshot, replace(me, claim=beginning))


def _ranges(
    snapshot: Snapshot, blockers: Sequence[Contender], me: Contender
) -> Iterator[tuple[int, int]]:
    """The orders of those ``blockers`` behind ``me``, as ranges without other contenders."""
    wanted = {contender.key for contender in blockers}
    first = last = 0
    for contender in snapshot.contenders:
        if contender.order > me.order and contender.key in wanted:
            first, last = first or contender.order, contender.order
        elif first:
            yield first, last
            first = 0
    if first:
        yield first, last


def _mode_of(contender: Contender) -> Mode:
    """The mode that it excludes others by now, whatever its target."""
    claim = contender.claim
    if isinstance(claim, Convertible):
        return claim.mode
    return Mode.EX if isinstance(claim, Permit) else claim
