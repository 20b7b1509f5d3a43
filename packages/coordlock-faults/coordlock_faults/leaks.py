"""Leaks: what is left when everything is over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.attempt import WORKERS
from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.events import FOREVER
from coordlock_faults.history import History
from coordlock_faults.violation import Violation, together

__all__ = ["Leaked", "Missing", "leaks"]


@dataclass(frozen=True, slots=True)
class Leaked(Violation):
    """Something is left that no live grant holds."""


@dataclass(frozen=True, slots=True)
class Missing(Violation):
    """A grant holds what the service does not have."""


def leaks(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """After quiescence no contender is left, whatever the faults before.

    By the ground truth, the service's contenders are exactly those of the grants that were held
    when it was surveyed: neither released nor lost, of a process that lives. Those that had been
    lost for less than ``bounds.signal`` may be there: a holder is told 0.2 s before they are
    withdrawn. So may workers of a work queue, for ``bounds.idle`` after their last item.
    """
    return list(islice(_contenders(history, bounds), bounds.findings))


def _contenders(history: History, bounds: Bounds) -> Iterator[Violation]:
    if not history.has_truth:
        return
    surveyed = history.end if history.truth.surveyed is None else history.truth.surveyed.at
    held = {
        (one.lock, one.token): one
        for one in history.granted
        if one.end is None or one.end.at > surveyed
    }
    leaving = {
        (one.lock, one.token)
        for one in history.granted
        if one.lost is not None and one.lost.at > surveyed - bounds.signal
    }
    worked = {(one.lock, one.token): one.end.at for one in history.granted if one.end is not None}
    known = {(one.lock, one.token): one for one in history.attempts.values()}
    for life in history.truth.lives:
        place = life.appeared.lock, life.appeared.token
        if life.gone != FOREVER or held.pop(place, None) is not None or place in leaving:
            continue
        busy = worked.get(place, life.appeared.at)
        if not life.appeared.lock.startswith(WORKERS) or surveyed - busy > bounds.idle:
            what = f"{life.appeared.key} (token {life.appeared.token}) is left in the queue"
            yield Leaked(what, together(known.get(place), life.appeared))
    for one in held.values():
        what = f"{one.process} holds {one.lock} (token {one.token}), and has no contender there"
        yield Missing(what, together(one, history.life(one)))
