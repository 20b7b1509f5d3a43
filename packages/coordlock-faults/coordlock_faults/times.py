"""When the service's revisions were made: what can be proven from what clients and observers saw.

The service's record has an order and no time that compares with the clients'. But a contender was
not created before its acquire was invoked, and nothing happened later than it was told.
Both carry over to other revisions, because those follow each other in time: what came after the
creation came after that invocation, too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from coordlock_faults.attempt import WORKERS, Attempt
from coordlock_faults.events import FOREVER
from coordlock_faults.truth import Truth

__all__ = ["RevisionTimes"]


class RevisionTimes:
    """Bounds in nanoseconds for the moments of revisions."""

    def __init__(self, truth: Truth, attempts: Iterable[Attempt]) -> None:
        lower: list[tuple[int, int]] = []
        upper: list[tuple[int, int]] = []
        if truth.surveyed is not None:
            upper.append((truth.surveyed.revision, truth.surveyed.at))
        for life in truth.lives:
            upper.append((life.appeared.revision, life.appeared.at))
            if life.disappeared is not None:
                upper.append((life.disappeared.revision, life.disappeared.at))
        for attempt in attempts:
            own = truth.find(attempt.lock, attempt.token)
            if own is None:
                continue
            created = own.appeared.revision
            if not attempt.lock.startswith(WORKERS):  # whose contender may be of an earlier attempt
                lower.append((created, attempt.invoked.at))
            if attempt.acknowledged is not None:
                upper.append((created, attempt.acknowledged.at))
            # A release that has returned proves nothing: it waits for the service only so long.
        lower.sort()
        upper.sort()
        self._lower: Final = [revision for revision, _ in lower]
        self._not_before: Final = list(accumulate((at for _, at in lower), max))
        self._upper: Final = [revision for revision, _ in upper]
        self._not_after: Final = list(accumulate((at for _, at in reversed(upper)), min))[::-1]

    def not_before(self, revision: int) -> int:
        """``revision`` was made at this moment or later; 0 where nothing is known."""
        known = bisect_right(self._lower, revision)
        return self._not_before[known - 1] if known else 0

    def not_after(self, revision: int) -> int:
        """``revision`` was made at this moment or earlier; `FOREVER` where nothing is known."""
        known = bisect_left(self._upper, revision)
        return self._not_after[known] if known < len(self._upper) else FOREVER
