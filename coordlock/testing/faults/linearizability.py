"""Linearizability of the fenced mutex: whether one order of grants and releases explains it all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock.testing.faults.attempt import Attempt
from coordlock.testing.faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock.testing.faults.events import Reach, ReleaseAcknowledged, ReleaseSent
from coordlock.testing.faults.history import History
from coordlock.testing.faults.mutex import Acquire, FencedMutex, Release
from coordlock.testing.faults.search import Call, Decision, linearize
from coordlock.testing.faults.violation import Violation, together

__all__ = ["NotLinearizable", "Undecided", "decides", "linearizability"]


@dataclass(frozen=True, slots=True)
class NotLinearizable(Violation):
    """No order of grants and releases explains what the clients of a lock were told."""


@dataclass(frozen=True, slots=True)
class Undecided(Violation):
    """The search was given up. The history may be right or wrong."""


def decides(history: History) -> bool:
    """Whether the promise is made for this history.

    No client stood still, none was evicted, and the service lost nothing. Where that happens,
    grants overlap, and no mutex explains that.
    """
    harmful = {Reach.PAUSED, Reach.OPERATOR, Reach.DATA}
    return all(fault.began.reach not in harmful for fault in history.faults)


def linearizability(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """Each lock behaves like one fenced mutex, in histories that this `decides`.

    Every grant takes effect between `AcquireInvoked` and `Granted`, every end of a hold between
    `ReleaseSent` and its answer, in one order in which grants don't conflict with holders, and have
    greater tokens than conflicting ones before. A release that was not acknowledged, a loss and a
    death may take effect at any time from then on, or never.

    A search, after ``bounds.states`` states given up as `Undecided`: never a silent pass. Locks are
    independent of each other (Herlihy and Wing, "Linearizability: a correctness condition for
    concurrent objects", 1990), so each is searched for itself.
    """
    found = (
        violation
        for lock, attempts in history.locks.items()
        for violation in _of_lock(bounds, lock, attempts)
    )
    return list(islice(found, bounds.findings))


def _of_lock(bounds: Bounds, lock: str, attempts: list[Attempt]) -> Iterator[Violation]:
    calls = [call for one in attempts for call in _calls(one)]
    outcome = linearize(calls, FencedMutex(), FencedMutex.step, bounds.states)
    if outcome.decision is Decision.LINEARIZABLE:
        return
    by_name = {one.name: one for one in attempts}
    holders = [by_name[name] for name, _ in outcome.state.holders]
    stuck = [by_name[operation.attempt] for operation in outcome.stuck]
    events = together(
        *((one.invoked, one.granted) for one in holders),
        *((one.invoked, one.granted, one.end) for one in stuck),
    )
    if outcome.decision is Decision.UNDECIDED:
        what = f"{lock}: undecided after {outcome.states} states"
        yield Undecided(what, events)
        return
    held = ", ".join(f"{one.name} (token {one.token})" for one in holders) or "nobody"
    tried = ", ".join(f"{one.name} (token {one.token})" for one in stuck)
    what = (
        f"{lock}: of {len(calls)} calls no more than {outcome.longest} can be put in an order; "
        f"then {held} holds it, and what comes next is of {tried}"
    )
    yield NotLinearizable(what, events)


def _calls(attempt: Attempt) -> Iterator[Call[Acquire | Release]]:
    """The calls of an attempt that was granted.

    Others need no place in the order. A refused call has changed nothing; and one without an answer
    may have become a holder, but that would only be in others' way: if there is an order with it,
    there is one without it.

    For the same reason an end that was not acknowledged, and that may come at any time or never,
    is taken for one that comes at once: a longer hold only is in others' way for longer.
    """
    granted, end = attempt.granted, attempt.end
    if granted is None:
        return
    acquire = Acquire(attempt.name, attempt.claim, granted.token)
    yield Call(attempt.invoked.at, granted.at, acquire)
    if end is not None:
        answer = attempt.release_answer
        at = max(end.at, granted.at)  # a process that is being killed may still be granted
        told = isinstance(end, ReleaseSent) and isinstance(answer, ReleaseAcknowledged)
        yield Call(at, answer.at if told and answer else at, Release(attempt.name))
