"""Liveness: after the faults, every call is answered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock.testing.faults.attempt import Attempt
from coordlock.testing.faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock.testing.faults.events import FOREVER, Event
from coordlock.testing.faults.history import History
from coordlock.testing.faults.violation import Violation, together

__all__ = ["Unanswered", "liveness"]


@dataclass(frozen=True, slots=True)
class Unanswered(Violation):
    """A call waited for too long, though there was no fault any more, or to the end."""


def liveness(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """Every call is answered within ``bounds.recovery`` from when all faults are healed.

    Every acquire is granted or raises, and every release returns or raises, no later than that
    after the later of its call and the end of the last fault: not only after the very last one,
    but in every time without faults that is long enough. And everything is answered before the
    end. Processes that were killed are owed nothing.

    That is a promise of coordlock only where holders release: ``bounds.recovery`` must be more than
    what a dead holder's time-to-live takes, and all holders before the waiter together.
    """
    calm = history.faults.calm(history.end)
    found = (
        violation
        for attempt in history.attempts.values()
        for call, answer in _calls(attempt)
        for violation in _judged(history, bounds, calm, attempt, call, answer)
    )
    return list(islice(found, bounds.findings))


def _calls(attempt: Attempt) -> Iterator[tuple[Event, Event | None]]:
    """Each call of the attempt with its answer."""
    yield attempt.invoked, attempt.answer
    if attempt.release_sent is not None:
        yield attempt.release_sent, attempt.release_answer


def _judged(
    history: History,
    bounds: Bounds,
    calm: list[tuple[int, int]],
    attempt: Attempt,
    call: Event,
    answer: Event | None,
) -> Iterator[Violation]:
    answered = FOREVER if answer is None else answer.at
    owed = min(answered, FOREVER if attempt.killed is None else attempt.killed.at)
    for number in range(max(0, bisect_right(calm, (call.at, 0)) - 1), len(calm)):
        start, end = calm[number]
        if start >= owed:
            break
        due = max(start, call.at) + bounds.recovery
        if due < min(end, owed):
            what = (
                f"{attempt.name} waited for {attempt.lock} for more than "
                f"{bounds.recovery / 1e9:g} s without faults"
            )
            healed = [one.healed for one in history.faults if one.ends == start]
            yield Unanswered(what, together(healed[-1:], attempt))
            return
    if owed == FOREVER:
        what = f"{attempt.name} was never answered; the run ended before it had to be"
        yield Unanswered(what, attempt.events)
