"""Observers: what they are shown goes forward, and ends at the present."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.call import Call
from coordlock_faults.events import Act, Shown
from coordlock_faults.history import History
from coordlock_faults.violation import Violation, together

__all__ = ["NotShown", "WentBack", "observers"]


@dataclass(frozen=True, slots=True)
class NotShown(Violation):
    """An observer was not shown the present state, though nothing changed any more."""


@dataclass(frozen=True, slots=True)
class WentBack(Violation):
    """An observer was shown what is older than what it had been shown before."""


def observers(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """What an observer is shown goes forward, whatever the faults, and ends at the present.

    * A key's version never gets smaller, nor does the mark of a candidate or a member: those who
      publish have marks that grow.
    * Who was not shown any more does not come back.
    * A leader or a member that was not shown before has a greater token than all that were.
    * What it was shown before the service lost data does not count for these.
    * Every observer that is there at quiescence, and whose process lives, is shown the present
      state, no later than ``bounds.recovery`` after that.
    """
    found = (
        violation
        for call in history.called(Act.OBSERVE)
        for check in (_backwards, _unaware)
        for violation in check(history, bounds, call)
    )
    return list(islice(found, bounds.findings))


def _backwards(history: History, bounds: Bounds, call: Call) -> Iterator[Violation]:
    who = f"an observer of {call.of} in {call.process}"
    published = call.of in history.locks
    #: By token or key, its newest mark or version, and when that was shown.
    known: dict[int, tuple[int, Shown]] = {}
    before: set[int] = set()
    since = call.called.at
    for shown in call.shown:
        if any(history.faults.losses(since - bounds.notice, shown.at)):
            known, before = {}, set()
        since = shown.at
        state = second_by_first(shown.values, 2 if published else 3)
        newest = max(known, default=0)
        for one, number in state.items():
            last, when = known.get(one, (0, shown))
            if number < last:
                what = f"{who} was shown {one} with {number} after {last}"
                yield WentBack(what, together(call.called, when, shown))
            elif one in known and one not in before:
                what = f"{who} was shown {one} again, which had gone"
                yield WentBack(what, together(call.called, when, shown))
            elif published and one not in known and one < newest:
                what = f"{who} was shown token {one} after token {newest}"
                yield WentBack(what, together(call.called, known[newest][1], shown))
            known[one] = max(number, last), shown
        before = set(state)


def _unaware(history: History, bounds: Bounds, call: Call) -> Iterator[Violation]:
    present = history.presents.get(call.of)
    if call.killed is not None or present is None or history.quiesced is None:
        return  # owed nothing, or incomplete
    if call.answer is not None and call.answer.at < history.quiesced.at:
        return  # closed before
    last = call.shown[-1] if call.shown else None
    late = last is not None and last.at > history.quiesced.at + bounds.recovery
    if late or last is None or last.values != present.values:
        shown = "nothing" if last is None else f"{last.values}"
        when = " too late" if late else ""
        what = (
            f"an observer of {call.of} in {call.process} was shown {shown} in the end{when}, and "
            f"the present is {present.values}"
        )
        yield NotShown(what, together(call, last, present))


def second_by_first(values: tuple[int, ...], width: int) -> dict[int, int]:
    """A state, of so many numbers each: mark by token, or version by key."""
    return dict(zip(values[::width], values[1::width], strict=True))
