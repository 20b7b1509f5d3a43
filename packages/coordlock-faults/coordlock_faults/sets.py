"""Several locks at once: all or none, and in one order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.attempt import Attempt
from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.history import History
from coordlock_faults.violation import Violation, together

__all__ = ["InPart", "OutOfOrder", "sets"]


@dataclass(frozen=True, slots=True)
class InPart(Violation):
    """Of several locks that were asked for at once, some were granted and others not."""


@dataclass(frozen=True, slots=True)
class OutOfOrder(Violation):
    """Of two that asked for several locks, each stands before the other in one of the queues."""


def sets(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """Several locks are granted together, and stand in one order over all queues.

    * A call for several locks gets all of them or none, and loses or keeps them together.
    * Of two calls that meet on several locks, the tokens of one are smaller on all of them. So
      contenders that wait only for earlier ones never wait in a cycle.
    """
    groups: dict[str, list[Attempt]] = {}
    for attempt in history.attempts.values():
        if attempt.invoked.together:
            groups.setdefault(attempt.invoked.together, []).append(attempt)
    found = (*_in_part(groups), *_out_of_order(history))
    return list(islice(found, bounds.findings))


def _in_part(groups: dict[str, list[Attempt]]) -> Iterator[Violation]:
    for name, attempts in groups.items():
        granted = [one for one in attempts if one.granted is not None]
        # A process that was killed between two lines has been granted all.
        others = [one for one in attempts if one.granted is None and one.killed is None]
        if granted and others:
            what = f"of {name} {granted[0].lock} was granted, and {others[0].lock} was not"
            yield InPart(what, together(*granted, *others))


def _out_of_order(history: History) -> Iterator[Violation]:
    places: dict[str, dict[str, tuple[int, Attempt]]] = {}
    for attempt in history.attempts.values():
        if attempt.token is not None and attempt.invoked.together:
            mine = places.setdefault(attempt.invoked.together, {})
            mine[attempt.lock] = attempt.token, attempt
    # In the order of one lock, each must be in the same order on all others: so its tokens on any
    # two locks must not enclose those of another the other way round.
    by_lock: dict[str, list[tuple[int, str]]] = {}
    for name, mine in places.items():
        for lock, (token, _) in mine.items():
            by_lock.setdefault(lock, []).append((token, name))
    for lock, order in by_lock.items():
        newest: dict[str, tuple[int, str]] = {}
        for _, name in sorted(order):
            for other, (token, attempt) in places[name].items():
                if other == lock:
                    continue
                # Of those before on this lock, the newest on the other one.
                before = newest.get(other)
                if before is not None and before[0] > token:
                    first = places[before[1]][other][1]
                    what = f"{before[1]} stands before {name} on {lock}, and behind it on {other}"
                    yield OutOfOrder(what, together(first, attempt))
                if before is None or before[0] < token:
                    newest[other] = token, name
