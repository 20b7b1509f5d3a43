"""The loss signal: it comes in time, and the service keeps a contender until it is due."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.attempt import Attempt
from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.events import FOREVER
from coordlock_faults.history import History
from coordlock_faults.violation import Violation, together

__all__ = ["EarlyRemoval", "LateSignal", "MissingSignal", "loss"]


@dataclass(frozen=True, slots=True)
class LateSignal(Violation):
    """A loss was signalled after the local deadline. ``late`` is in nanoseconds."""

    late: int


@dataclass(frozen=True, slots=True)
class MissingSignal(Violation):
    """A contender was gone, and its holder was not told."""


@dataclass(frozen=True, slots=True)
class EarlyRemoval(Violation):
    """The service removed a contender before its holder's local deadline.

    Either the deadline was too late, which is coordlock's fault, or the service broke its word:
    some versions of etcd revoke live leases.
    """


def loss(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """Holders are told in time, under all faults.

    Of every grant that was not released first:

    * The loss is signalled no later than ``bounds.signal`` after the local deadline. Where the
      process stands still at the deadline, or comes to before that time is over, the signal is due
      when it goes on.
    * By the ground truth: once its contender is gone, it is signalled no later than
      ``bounds.notice`` after that was seen, give or take the same.
    * By the ground truth: the service keeps the contender until the local deadline, as it was known
      when the lock was granted and when the loss was signalled, unless an operator removes it.
    """
    found = (
        violation
        for attempt in history.granted
        for check in (_late, _missing, _early)
        for violation in check(history, bounds, attempt)
    )
    return list(islice(found, bounds.findings))


def _late(history: History, bounds: Bounds, attempt: Attempt) -> Iterator[Violation]:
    lost = attempt.lost
    if lost is None or lost.deadline is None or attempt.end is not lost:
        return
    due = history.faults.running(attempt.process, lost.deadline, bounds.signal)
    if lost.at > due + bounds.signal:
        late = lost.at - due
        what = (
            f"{attempt.process} was told of the loss of {attempt.lock} (token {attempt.token}) "
            f"{late / 1e6:.3f} ms too late"
        )
        yield LateSignal(what, attempt.events, late)


def _missing(history: History, bounds: Bounds, attempt: Attempt) -> Iterator[Violation]:
    life = history.life(attempt)
    if life is None or life.disappeared is None:
        return
    seen = history.times.not_after(life.gone)
    due = history.faults.running(attempt.process, seen + bounds.notice, bounds.signal)
    end = FOREVER if attempt.end is None else attempt.end.at
    if min(end, history.end) > due + bounds.signal:
        what = (
            f"{attempt.process} was not told of the loss of {attempt.lock} (token {attempt.token}) "
            f"for {bounds.notice / 1e9:g} s"
        )
        yield MissingSignal(what, together(attempt, life))


def _early(history: History, bounds: Bounds, attempt: Attempt) -> Iterator[Violation]:
    life = history.life(attempt)
    if life is None or life.disappeared is None:
        return
    gone = history.times.not_after(life.gone)
    deadline = attempt.deadline or 0
    left = [one.at for one in (attempt.release_sent, attempt.killed) if one is not None]
    if gone >= deadline or gone >= min(left, default=FOREVER):
        return
    if not history.eviction_of_set(attempt, gone):
        what = (
            f"the service removed token {attempt.token} of {attempt.process} from {attempt.lock} "
            f"{(deadline - gone) / 1e6:.3f} ms or more before the deadline"
        )
        yield EarlyRemoval(what, together(attempt, life))
