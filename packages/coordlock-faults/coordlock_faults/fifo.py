"""First come, first served: grants follow the order of tokens."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice

from coordlock.model.claim import Claim, Mode, Permit
from coordlock_faults.attempt import WORKERS, Attempt
from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.events import FOREVER, Event
from coordlock_faults.history import History
from coordlock_faults.truth import Life
from coordlock_faults.violation import Violation, together

__all__ = ["NeverFirst", "Overtaken", "fifo"]


@dataclass(frozen=True, slots=True)
class Overtaken(Violation):
    """A contender was granted while earlier ones, which it must wait for, were in the queue."""


@dataclass(frozen=True, slots=True)
class NeverFirst(Violation):
    """A contender was granted, and was gone before those were that it must wait for."""


@dataclass(frozen=True, slots=True)
class _Contender:
    """What is known of one contender: by its client, by the service, or by both."""

    token: int
    claim: Claim
    attempt: Attempt | None
    life: Life | None

    @property
    def events(self) -> tuple[Event, ...]:
        return together(self.attempt, self.life)

    def __str__(self) -> str:
        process = f" of {self.attempt.process}" if self.attempt else ""
        return f"token {self.token}{process}"


def fifo(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """Grants follow the order of tokens among conflicting contenders, under all faults.

    * None is granted while an earlier conflicting contender is in the queue (on a semaphore of n:
      while n earlier ones are). That one was there is proven by its own grant later on, unless it
      may have been removed before that, because its process was paused, an operator at it or data
      of the service lost while it waited; or, by the ground truth, by its removal after the
      creation of another contender that was asked for later than the grant.
    * By the ground truth, without any clock: for every grant there was a revision at which its
      contender was in the queue, and all those were gone that it must wait for. So none is
      granted whose own contender was gone before its turn came.

    Contenders that were withdrawn or had expired are not overtaken: the ground truth tells when
    they left. Without it, only the order of grants in time is checked.
    """
    found = (
        violation
        for lock, contenders in _queues(history).items()
        if not lock.startswith(WORKERS)  # none of them waits, and each serves several items
        for violation in (
            *_overtaken(history, contenders),
            *(_never_first(contenders) if history.has_truth else ()),
        )
    )
    return list(islice(found, bounds.findings))


def _queues(history: History) -> dict[str, list[_Contender]]:
    """The contenders of every lock, in the order in which they are to be served."""
    queues: dict[str, list[_Contender]] = {}
    matched: set[int] = set()
    for attempt in history.attempts.values():
        if attempt.token is not None:
            life = history.life(attempt)
            matched.add(id(life))
            one = _Contender(attempt.token, attempt.claim, attempt, life)
            queues.setdefault(attempt.lock, []).append(one)
    for life in history.truth.lives:
        if id(life) not in matched:
            one = _Contender(life.appeared.token, life.appeared.claim, None, life)
            queues.setdefault(life.appeared.lock, []).append(one)
    for queue in queues.values():
        queue.sort(key=lambda one: one.token)
    return queues


def _overtaken(history: History, queue: list[_Contender]) -> Iterator[Violation]:
    earlier = _Earlier(one.claim for one in queue)
    for one in queue:
        granted = one.attempt and one.attempt.granted
        if granted:
            free, blockers = earlier.free_for(one.claim)
            if free > granted.at:
                still = ", ".join(map(str, blockers))
                what = f"{one} was granted while there was {still}"
                yield Overtaken(what, together(one, *blockers))
        earlier.add(one, _there_until(history, one))


def _there_until(history: History, one: _Contender) -> int:
    """A moment at which the contender was in the queue, the latest that is proven; 0 for none."""
    proven = 0
    gone = FOREVER
    if one.life is not None:
        gone = history.times.not_after(one.life.gone)
        proven = (
            FOREVER if one.life.disappeared is None else history.times.not_before(one.life.gone)
        )
    attempt = one.attempt
    if attempt and attempt.granted:
        at = attempt.granted.at
        paused = history.faults.pause(attempt.process, attempt.invoked.at, at)
        lost = any(history.faults.losses(attempt.invoked.at, at))
        if not paused and not lost and not history.eviction(attempt, at):
            proven = max(proven, min(at, gone))
    return proven


def _never_first(queue: list[_Contender]) -> Iterator[Violation]:
    earlier = _Earlier(one.claim for one in queue)
    for one in queue:
        if one.life is None:
            continue
        if one.attempt is not None and one.attempt.granted is not None:
            first, blockers = earlier.free_for(one.claim)
            if first >= one.life.gone or first == FOREVER:
                still = ", ".join(map(str, blockers))
                what = f"{one} was granted though it was never first: before it there was {still}"
                yield NeverFirst(what, together(one, *blockers))
        earlier.add(one, one.life.gone)


class _Earlier:
    """Of the contenders so far: when those will have gone for whom a claim must wait.

    "When" is whatever is added: moments or revisions. A mode waits for the last of those that it
    conflicts with; a permit of n until n - 1 are left, so for the n-th from the end.
    """

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._last: dict[Claim, tuple[int, _Contender]] = {}
        self._permits: dict[int, list[tuple[int, int, _Contender]]] = {
            claim.of: [] for claim in set(claims) if isinstance(claim, Permit)
        }
        self._numbers = count()

    def add(self, one: _Contender, gone: int) -> None:
        """Note that ``one`` is in the queue until ``gone``."""
        if one.claim not in self._last or self._last[one.claim][0] < gone:
            self._last[one.claim] = (gone, one)
        for permits, latest in self._permits.items():
            heapq.heappush(latest, (gone, next(self._numbers), one))
            if len(latest) > permits:
                heapq.heappop(latest)

    def free_for(self, claim: Claim) -> tuple[int, list[_Contender]]:
        """When ``claim`` is next, and what is in its way until then; 0 where nothing is."""
        if isinstance(claim, Permit):
            latest = self._permits[claim.of]
            if len(latest) < claim.of:
                return 0, []
            return latest[0][0], [one for _, _, one in sorted(latest)]
        way = [
            last
            for other, last in self._last.items()
            if not isinstance(other, Mode) or claim.conflicts(other)
        ]
        last = max(way, key=lambda pair: pair[0], default=None)
        return (0, []) if last is None else (last[0], [last[1]])
