"""Exclusion: which holders overlap."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.events import Event
from coordlock_faults.history import History
from coordlock_faults.overlap import Overlap, overlaps
from coordlock_faults.violation import Violation, together

__all__ = ["HeldTogether", "exclusion"]


@dataclass(frozen=True, slots=True)
class HeldTogether(Violation):
    """Conflicting grants were held together, and no pause, operator or lost data explains it.

    ``length`` is in nanoseconds.
    """

    length: int


def exclusion(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """Conflicting grants are never held together, under all faults of servers and network.

    A hold lasts from the event `Granted` to the first of `ReleaseSent`, `LossSignalled` and the
    beginning of the fault that killed its process. Two conflict by their modes; on a semaphore of n
    any n + 1 do.

    No lock can promise this where a holder stands still, an operator removes its contender, or the
    service loses its data: then it learns of its loss too late. Such overlaps are no violations;
    `overlaps` lists them. That they do no harm is for `register` to show. They are excused only by
    what befell the one with the older token, and only for as long as that explains:

    * Its process was paused when the overlap began, or until less than ``bounds.signal`` before;
      its local deadline, as it was told last, had passed by then; and the overlap was over
      ``bounds.signal`` after the process went on.
    * An operator removed its contender, or the service lost data, and the overlap was over
      ``bounds.notice`` after that.
    """
    found = (one for one in overlaps(history, bounds) if not one.excuses)
    return [_violation(history, one) for one in islice(found, bounds.findings)]


def _violation(history: History, overlap: Overlap) -> HeldTogether:
    lock = overlap.holders[0].lock
    who = ", ".join(f"{one.process} (token {one.token})" for one in overlap.holders)
    length = overlap.end - overlap.start
    what = f"{lock} was held together by {who}, for {length / 1e6:.3f} ms"
    removals: list[Event] = []
    for one in overlap.holders[:-1]:
        life = history.life(one)
        if life is not None and life.disappeared is not None:
            removals.append(life.disappeared)
            if history.times.not_after(life.gone) < (one.deadline or 0):
                what += f"; the service removed token {one.token} before its deadline"
    return HeldTogether(what, together(overlap, removals), length)
