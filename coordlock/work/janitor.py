"""What every consumer's client does for the others: it finds void claims, and items that are due.

It makes these items ready again. It looks for void claims once a second, in the background, and
less often the more claims there are, so that the looks of a thousand workers are no burden.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from coordlock.backend.data import Expect, Operation, Put
from coordlock.errors import CoordlockError
from coordlock.kernel.retry import retried
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import soon
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.work.layout import Layout, Serial, creating, emptied, ending
from coordlock.work.records import Again, Claim, Dead, serials
from coordlock.work.store import Outcome, Store

__all__ = ["Janitor", "Limits", "returning"]

log = Log("coordlock")

#: Seconds between two looks at the claims, and how many more for each claim.
_LOOK: Final = 1.0
_LOOK_PER_CLAIM: Final = 0.01
#: Seconds between two looks at what is due, where the bell is rung all the time.
_PAUSE: Final = 0.25
#: How many delayed items one write makes ready.
_MOVED: Final = 24


@dataclass(frozen=True)
class Limits:
    """When an item counts as dead.

    Attributes:
        failures: after so many.
        deliveries: after it was handed to a worker so often; None for no limit.
    """

    failures: int
    deliveries: int | None = None

    def reason(self, again: Again) -> str | None:
        """Why an item is dead that was delivered, and has failed, so often; None if it is not."""
        if again.failures >= self.failures:
            return f"failed {again.failures} times"
        if self.deliveries is not None and again.deliveries >= self.deliveries:
            return f"delivered {again.deliveries} times"
        return None


def returning(
    layout: Layout, one: Serial, again: Again, limits: Limits | None = None, reason: str = ""
) -> tuple[Operation, ...]:
    """What lets an item be claimed again, or puts it among the dead where ``limits`` say so.

    ``reason`` is why it failed last.
    """
    bell = Put(layout.bell, b"")
    if limits is not None and (dead := limits.reason(again)) is not None:
        record = Dead(time.time(), reason or dead, again.deliveries, again.failures)
        return *layout.dead.adding(one, record.encode()), bell
    if again.due:
        return *layout.later.adding(one, again.due, again.encode()), bell
    return *creating(layout.ready(one), again.encode()), bell


class Janitor:
    """Looks after one queue for one client. Safe for threads."""

    def __init__(self, store: Store) -> None:
        self._store: Final = store
        self._engine: Final = store.engine
        self._layout: Final = store.layout
        self._lock: Final = threading.RLock()  # a signal handler may take an item, too
        self._is_looking = False
        #: Whether there may be claims, and when to look at them, in seconds of the client's clock:
        #: not with the first claim.
        self._has_claims = True
        self._look_at = self._engine.clock.now() + self._engine.timers.jitter(_LOOK)
        #: When the next item may be due, in seconds since 1970, and at which bell that was found;
        #: not before when, in seconds of the client's clock, to find out again.
        self._due = -math.inf
        self._due_at = -1
        self._find_at = -math.inf
        self._is_moving = False
        #: What is due and not ready yet: when it was due, its key and its record.
        self._pending: list[tuple[float, Serial, str, Again]] = []

    def expect(self) -> None:
        """Claims may have been made: looks are needed."""
        self._has_claims = True

    def seconds(self, bell: int) -> float:
        """In how many seconds the next look is needed; infinite where none is.

        ``bell`` is its version as last read: what has rung it during a pause is looked for after.
        """
        now = self._engine.clock.now()
        look = self._look_at - now if self._has_claims else math.inf
        find = self._find_at - now if bell > self._due_at else math.inf
        return max(0.0, min(look, find, self._due - time.time()))

    def look_if_due(self, limits: Limits) -> None:
        """Begin to look for void claims in the background, if it is time."""
        if self._is_time_to_look():  # from where Ctrl-C cannot strike: it ends no look half-way
            soon(self._engine.timers, lambda: self._begin_to_look(limits))

    def _is_time_to_look(self) -> bool:
        return not self._is_looking and self._engine.clock.now() >= self._look_at

    def _begin_to_look(self, limits: Limits) -> None:
        with self._lock:
            if not self._is_time_to_look():
                return
            self._is_looking = True
        run_in_background(self._look(limits))

    def _look(self, limits: Limits) -> Steps[None]:
        try:
            yield from self._find_void(limits)
        except CoordlockError as error:  # the next look may succeed
            log.debug("work queue %r: %s", self._layout.name, error)
            self._look_at = self._engine.clock.now() + _LOOK
        finally:
            self._is_looking = False

    def _find_void(self, limits: Limits) -> Steps[None]:
        """Make the items of void claims ready, or bury them."""
        store, layout = self._store, self._layout
        found = serials((yield from store.read(layout.claims)))
        claims = {one: Claim.decode(key, stored) for one, (key, stored) in found.items()}
        self._has_claims = bool(claims)
        pause = _LOOK + _LOOK_PER_CLAIM * len(claims) + self._engine.timers.jitter(_LOOK / 4)
        self._look_at = self._engine.clock.now() + pause
        if not claims:
            return
        # Only now, so that a worker that is missing has left. This may show the past; so what is
        # missing is asked for once more, by the costlier reading that does not.
        ask = lambda: store.backend.snapshot(layout.workers)  # noqa: E731
        workers = yield from retried(ask, self._engine.timers)
        if void := _without(claims, workers):
            void = _without(void, (yield from store.workers()))
        for one, claim in void.items():
            again = Again(0.0, claim.token, claim.deliveries + 1, claim.failures + 1)
            reason = f"failed {again.failures} times, at last because its worker ended"
            ended = returning(layout, one, again, limits, reason)
            key, stored = found[one]
            yield from store.write([*ending(key, stored.version), *ended])

    def make_ready(self, bell: int) -> Steps[bool]:
        """Make the first items that are due ready, if it is time to look; whether there were any.

        ``bell`` is its version as last read.
        """
        now = self._engine.clock.now()
        is_rung = bell > self._due_at and now >= self._find_at
        if not (is_rung or self._pending or time.time() >= self._due):
            return False
        begins = False
        try:
            with self._lock:
                if begins := not self._is_moving:
                    self._is_moving = True
            if not begins:
                return False
            if not self._pending:
                yield from self._find_due()
            return (yield from self._move())
        finally:
            if begins:
                self._is_moving = False
                self._find_at = now + _PAUSE

    def _find_due(self) -> Steps[None]:
        """Note what is due, and when the next items may be."""
        # Before the folders are read: whatever is added to them later rings the bell.
        bell = (yield from self._store.state()).bell
        self._pending = []
        _, due = yield from self._open(self._layout.later.folder(), 0, bell)
        self._due_at, self._due = bell, due

    def _open(self, folder: str, level: int, bell: int) -> Steps[tuple[bool, float]]:
        """Note what is due in ``folder``; whether that is empty, and when the next may be due."""
        wheel, now, next_due = self._layout.later, time.time(), math.inf
        listing = yield from self._store.read(folder)
        if level == len(wheel.SPANS):
            found = serials(listing)
            for one, (key, stored) in found.items():
                again = Again.decode(key, stored)
                if again.due <= now:
                    self._pending.append((again.due, one, key, again))
                else:
                    next_due = min(next_due, again.due)
            return not found, next_due
        slots = {key.rpartition("/")[2]: key for key in listing.values}
        for opens, slot in sorted((wheel.opens(level, slot), slot) for slot in slots):
            if opens > now:
                next_due = min(next_due, opens)
                break
            below = wheel.folder(level + 1, slot)
            is_empty, due = yield from self._open(below, level + 1, bell)
            next_due = min(next_due, due)
            if is_empty:
                # Nothing was added since: that would have rung the bell.
                clearing = emptied(slots[slot], below)
                yield from self._store.write([Expect(self._layout.bell, bell), *clearing])
        return not slots, next_due

    def _move(self) -> Steps[bool]:
        """Make the first of what is due ready; whether there was any."""
        self._pending.sort(key=lambda one: one[:2])
        moved = self._pending[:_MOVED]
        if not moved:
            return False
        operations: list[Operation] = [Put(self._layout.bell, b"")]
        for _, one, key, again in moved:
            operations += ending(key)
            operations += creating(self._layout.ready(one), again.encode())
        if (yield from self._store.write(operations)) is Outcome.MADE:
            del self._pending[:_MOVED]
        else:  # another client does it, or an operator has removed one of them: look again
            self._pending, self._due_at = [], -1
        return True


def _without(claims: Mapping[Serial, Claim], workers: Snapshot) -> dict[Serial, Claim]:
    """Those of ``claims`` whose worker is not among ``workers``, all of whom are listed."""
    alive = {(one.key, one.order) for one in workers.contenders}
    return {one: claim for one, claim in claims.items() if (claim.worker, claim.order) not in alive}
