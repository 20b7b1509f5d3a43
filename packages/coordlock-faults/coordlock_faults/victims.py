"""Deadlocks: whoever gives up for one was in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.attempt import Attempt
from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.events import FOREVER
from coordlock_faults.history import History
from coordlock_faults.overlap import conflict
from coordlock_faults.violation import Violation, together

__all__ = ["FalseVictim", "victims"]


#: A process, and its name for one of its threads or tasks.
_Actor = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FalseVictim(Violation):
    """An attempt was given up because of a deadlock, and was in none."""


def victims(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """An attempt that fails with `DeadlockDetected` has waited in a cycle.

    There was a moment before it failed at which its actor waited for another one, that one for a
    third, and so on back to the first. One waits for another where both ask for the same lock, and
    the other's attempt conflicts and was not over: it held the lock, or asked for it, too.
    """
    actors: dict[_Actor, list[Attempt]] = {}
    for attempt in history.attempts.values():
        if attempt.invoked.actor:
            actors.setdefault(_actor_of(attempt), []).append(attempt)
    given_up = [
        one
        for one in history.attempts.values()
        if one.failed is not None and one.failed.error == "DeadlockDetected"
    ]
    found = (
        FalseVictim(f"{one.name} was in no cycle", together(one))
        for one in given_up
        if not any(_in_circle(one, actors, at) for at in _moments(one, history))
    )
    return list(islice(found, bounds.findings))


def _actor_of(attempt: Attempt) -> _Actor:
    return attempt.invoked.process, attempt.invoked.actor


def _moments(victim: Attempt, history: History) -> list[int]:
    """When something happened while the ``victim`` waited: just before, all was as until then."""
    assert victim.failed is not None
    start, end = victim.invoked.at, victim.failed.at
    others = history.attempts.values()
    times = {event.at for one in others for event in one.events if start < event.at < end}
    return [*sorted(times, reverse=True), end]


def _in_circle(victim: Attempt, actors: dict[_Actor, list[Attempt]], at: int) -> bool:
    me = _actor_of(victim)
    waiting: dict[_Actor, list[Attempt]] = {}
    present: dict[str, list[tuple[_Actor, Attempt]]] = {}
    for actor, attempts in actors.items():
        for one in attempts:
            if one.invoked.at < at <= _over(one):
                present.setdefault(one.lock, []).append((actor, one))
                if one.answer is None or at <= one.answer.at:
                    waiting.setdefault(actor, []).append(one)
    seen: set[_Actor] = set()
    left: Sequence[_Actor] = [me]
    while left:
        ahead: set[_Actor] = set()
        for actor in left:
            for mine in waiting.get(actor, ()):
                for other, theirs in present.get(mine.lock, ()):
                    if other != actor and conflict(mine.claim, theirs.claim):
                        ahead.add(other)
        if me in ahead:
            return True
        left = sorted(ahead - seen)
        seen |= ahead
    return False


def _over(one: Attempt) -> int:
    """When it kept nobody out any more, as far as its client knows."""
    if one.failed is not None:
        return one.failed.at
    answers = [end.at for end in (one.release_answer, one.lost, one.killed) if end is not None]
    # A release may have been done by the service at any time until it is answered.
    return max(answers, default=FOREVER)
