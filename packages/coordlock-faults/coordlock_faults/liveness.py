"""Liveness: after the faults, every call is answered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.attempt import Attempt
from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.call import Call
from coordlock_faults.events import FOREVER, Act, Event
from coordlock_faults.history import History
from coordlock_faults.violation import Violation, together

__all__ = ["Unanswered", "liveness"]


@dataclass(frozen=True, slots=True)
class Unanswered(Violation):
    """A call waited for too long, though there was no fault any more, or to the end."""


def liveness(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """Every call is answered within ``bounds.recovery`` from when all faults are healed.

    Every acquire is granted or raises, and every release and every other call returns or raises, no
    later than that after the later of its call and the end of the last fault: not only after the
    very last one, but in every time without faults that is long enough. And everything is answered
    before the end. Processes that were killed are owed nothing.

    That is a promise of coordlock only where holders release: ``bounds.recovery`` must be more than
    what a dead holder's time-to-live takes, and all holders before the waiter together.
    """
    calm = history.faults.calm(history.end)
    found = (
        violation for wait in _waits(history) for violation in _judged(history, bounds, calm, wait)
    )
    return list(islice(found, bounds.findings))


@dataclass(frozen=True, slots=True)
class _Wait:
    """A call and its answer; ``whose`` it is, and ``what`` it waits for."""

    call: Event
    answer: Event | None
    whose: Attempt | Call
    what: str


def _waits(history: History) -> Iterator[_Wait]:
    for attempt in history.attempts.values():
        what = f"{attempt.name} waited for {attempt.lock}"
        yield _Wait(attempt.invoked, attempt.answer, attempt, what)
        if attempt.release_sent is not None:
            yield _Wait(attempt.release_sent, attempt.release_answer, attempt, what)
    for call in history.calls.values():
        if call.act is not Act.OBSERVE:  # which goes on until it is given up
            what = f"{call.called.call} ({call.act.value}) waited for {call.of}"
            yield _Wait(call.called, call.answer, call, what)


def _judged(
    history: History, bounds: Bounds, calm: list[tuple[int, int]], wait: _Wait
) -> Iterator[Violation]:
    call, answer, killed = wait.call, wait.answer, wait.whose.killed
    answered = FOREVER if answer is None else answer.at
    owed = min(answered, FOREVER if killed is None else killed.at)
    for number in range(max(0, bisect_right(calm, (call.at, 0)) - 1), len(calm)):
        start, end = calm[number]
        if start >= owed:
            break
        due = max(start, call.at) + bounds.recovery
        if due < min(end, owed):
            what = f"{wait.what} for more than {bounds.recovery / 1e9:g} s without faults"
            healed = [one.healed for one in history.faults if one.ends == start]
            yield Unanswered(what, together(healed[-1:], wait.whose))
            return
    if owed == FOREVER:
        what = f"{wait.what}, and was never answered; the run ended before it had to be"
        yield Unanswered(what, wait.whose.events)
