"""What one consumer's client does for all: it makes items of dead workers, and due items, ready.

A contender in the queue of the chores says which client that is. Its session bounds it, by the
service's time: when the client has gone, another takes its place. The other clients follow that
queue, and send nothing while it has a contender.

A look for claims of dead workers comes once a second, and less often the more claims there are, so
that the claims of a thousand workers are no burden.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Final, Protocol

from coordlock.backend import Observation
from coordlock.backend.data import Expect, Operation, Put
from coordlock.backend.observation import Queue
from coordlock.errors import CoordlockError
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import sleep, soon, within
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Condition
from coordlock.work.layout import Layout, Serial, creating, emptied, ending
from coordlock.work.ready import Ready
from coordlock.work.records import Claim, Dead, Retry, State, serials
from coordlock.work.store import Outcome, Store
from coordlock.work.workers import Workers

__all__ = ["Chores", "Limits", "returning"]

log = Log("coordlock")

#: Seconds after a client's last call until it leaves the chores to others.
_IDLE_S: Final = 5.0
#: The longest pause before a client takes the chores that no other does: it is random.
_SPREAD_S: Final = 1.0
#: Seconds between two looks at the claims, and how many more for each claim.
_LOOK_S: Final = 1.0
_LOOK_PER_CLAIM_S: Final = 0.01
#: Seconds between two looks at what is due, where items are given back or delayed all the time.
_PAUSE_S: Final = 0.25
#: How many delayed items one write makes ready, and how many ready ones are enough.
_MOVED: Final = 24
_ENOUGH: Final = 16


@dataclass(frozen=True)
class Limits:
    """When an item counts as dead.

    Attributes:
        failures: after so many.
        deliveries: after it was handed to a worker so often; None for no limit.
    """

    failures: int
    deliveries: int | None = None

    def reason(self, retry: Retry) -> str | None:
        """Why an item is dead that was delivered, and has failed, so often; None if it is not."""
        if retry.failures >= self.failures:
            return f"failed {retry.failures} times"
        if self.deliveries is not None and retry.deliveries >= self.deliveries:
            return f"delivered {retry.deliveries} times"
        return None


def returning(
    layout: Layout, item: Serial, retry: Retry, limits: Limits | None = None, reason: str = ""
) -> tuple[Operation, ...]:
    """What lets an item be claimed again, or puts it among the dead where ``limits`` say so.

    ``reason`` is why it failed last.
    """
    changes = Put(layout.changes, b"")
    if limits is not None and (dead := limits.reason(retry)) is not None:
        facts = retry.token, retry.deliveries, retry.failures
        record = Dead(time.time(), reason or dead, *facts)
        return *layout.dead.adding(item, record.encode()), changes
    if retry.due:
        return *layout.delayed.adding(item, retry.due, retry.encode()), changes
    return *creating(layout.retry(item), retry.encode()), changes


def log_dead(name: str, item: str, retry: Retry, limits: Limits, reason: str = "") -> None:
    """Log that the ``item`` of the work queue ``name`` is dead, if ``limits`` say so."""
    if (dead := limits.reason(retry)) is not None:
        log.warning(
            "work queue %r: item %s is dead: %s",
            name,
            item,
            reason or dead,
            extra={"coordlock_name": name, "coordlock_kind": "item", "coordlock_item": item},
        )


class Follower(Protocol):
    """What the chores need of the client's consumer."""

    ready: Ready
    workers: Workers
    #: When it has last looked at the queue, by the client's clock.
    read_at: float

    @property
    def is_waiting(self) -> bool:
        """Whether a call waits for an item."""

    @property
    def is_following(self) -> bool:
        """Whether changes come as they happen."""

    def look(self) -> Steps[None]:
        """Look at the queue."""


class Chores:
    """Looks after one queue, if this client is the one that does. Safe for threads."""

    def __init__(self, store: Store, limits: Limits, consumer: Follower) -> None:
        self._store: Final = store
        self._engine: Final = store.engine
        self._layout: Final = store.layout
        self._limits: Final = limits
        self._consumer: Final = consumer
        self._lock: Final = threading.RLock()
        self._changed: Final = Condition()
        self._is_running = False
        #: Until when it goes on, in seconds of the client's clock.
        self._until = -math.inf
        #: The contender by which the chores are this client's.
        self._ticket: Ticket | None = None
        #: Whether another client was seen to do the chores.
        self.are_others = False
        #: The changes of the queue as last read.
        self._changes = -1
        #: Whether there may be claims, and when to look at them, in seconds of the client's clock.
        self._has_claims = True
        self._look_at = -math.inf
        #: When the next item may be due, in seconds since 1970, and at which changes that was
        #: found; not before when, in seconds of the client's clock, to find out again.
        self._due = -math.inf
        self._due_at = -1
        self._find_at = -math.inf
        self._is_moving = False
        #: What is due and not ready yet: when it was due, its key and its record.
        self._pending: list[tuple[float, Serial, str, Retry]] = []

    @property
    def is_ours(self) -> bool:
        """Whether this client does the chores."""
        return self._ticket is not None and self._ticket.lost is None

    def learn(self, state: State) -> None:
        """Take in ``state``, which differs from the one before: others may have claims by now."""
        is_news = state.changes > self._changes or not self._has_claims
        self._changes, self._has_claims = max(self._changes, state.changes), True
        if is_news:
            self._changed.notify()

    def go_on(self) -> None:
        """Do the chores, if no other client does, until some seconds after the last such call."""
        self._until = self._engine.clock.now() + _IDLE_S
        if not self._is_running:
            soon(self._engine.timers, self._begin)  # where Ctrl-C cannot strike

    def _begin(self) -> None:
        if not (self._is_running or self._engine.closed):
            self._is_running = True
            run_in_background(self._run())

    def _run(self) -> Steps[None]:
        queue, clock = Queue(self._layout.chores), self._engine.clock
        following = self._store.backend.follow(queue, self._changed.notify)
        try:
            while True:
                notified = self._changed.notified
                try:
                    seconds = yield from self._do(following)
                except CoordlockError as error:  # the next look may succeed
                    self._engine.check()
                    log.debug("work queue %r: %s", self._layout.name, error)
                    seconds = _LOOK_S
                if clock.now() >= self._until and not self._consumer.is_waiting:
                    return
                yield within(self._engine.timers, notified, min(seconds, _LOOK_S))
                if following.view.ended is not None:  # as where the service refused a password
                    following = self._store.backend.follow(queue, self._changed.notify)
        finally:
            following.cancel()
            self._leave()
            self.are_others = False
            self._consumer.workers.retire()
            self._is_running = False
            if clock.now() < self._until:  # there was a call meanwhile
                self.go_on()

    def _do(self, following: Observation[Snapshot]) -> Steps[float]:
        """Do what there is to do; after how many seconds to look again."""
        if not self.is_ours:
            self._leave()
            for seconds in (self._engine.timers.jitter(_SPREAD_S), 0.0):
                if (view := following.view).ended is not None:
                    raise copy(view.ended)
                self.are_others = view.state is not None and bool(view.state.contenders)
                if self.are_others or view.state is None:
                    return math.inf  # there is news of each change
                yield sleep(self._engine.timers, seconds)
            queue = {self._layout.chores: Mode.EX}
            name = self._layout.name
            ticket = yield from acquisition(self._engine, queue, 0, kind="work queue", name=name)
            ticket.call = None
            ticket.end.add_done_callback(lambda _: self._changed.notify())
            self._ticket = ticket
        consumer, clock = self._consumer, self._engine.clock
        if not consumer.is_following and clock.now() - consumer.read_at >= _LOOK_S:
            yield from consumer.look()
        if self._has_claims and clock.now() >= self._look_at:
            yield from self._find_void()
        while (yield from self.make_ready()):
            yield from consumer.look()
        return self._seconds()

    def _leave(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.withdraw()

    def _seconds(self) -> float:
        now = self._engine.clock.now()
        if self._pending or self._changes > self._due_at:
            find = self._find_at
        else:
            find = now + self._due - time.time()
        look = self._look_at if self._has_claims else math.inf
        return max(0.02, min(find, look) - now)

    def _find_void(self) -> Steps[None]:
        """Make the items of void claims ready, or bury them."""
        store, layout = self._store, self._layout
        self._has_claims = False  # those that are made from here on are found later
        found = serials((yield from store.read(layout.claims)))
        claims = {one: Claim.decode(key, stored) for one, (key, stored) in found.items()}
        self._has_claims = self._has_claims or bool(claims)
        pause = _LOOK_S + _LOOK_PER_CLAIM_S * len(claims)
        self._look_at = self._engine.clock.now() + pause
        if not claims:
            return
        # Only now, so that a worker that is missing has left. This may show the past; so what is
        # missing is asked for once more, by the costlier reading that does not.
        void = _without(claims, (yield from store.workers(owners=False)))
        if void:
            void = _without(void, (yield from store.workers()))
        for one, claim in void.items():
            retry = Retry(0.0, claim.token, claim.deliveries + 1, claim.failures + 1)
            reason = f"failed {retry.failures} times, at last because its worker ended"
            ended = returning(layout, one, retry, self._limits, reason)
            key, stored = found[one]
            made = yield from store.write([*ending(key, stored.version), *ended])
            if made is Outcome.MADE:
                log_dead(layout.name, str(one.id), retry, self._limits, reason)

    @property
    def may_be_due(self) -> bool:
        """Whether it is time to look for items that are due."""
        if self._consumer.ready.retries >= _ENOUGH:
            return False
        is_changed = self._changes > self._due_at and self._engine.clock.now() >= self._find_at
        return is_changed or bool(self._pending) or time.time() >= self._due

    def make_ready(self) -> Steps[bool]:
        """Make the first items that are due ready, if it is time to look; whether there were any.

        Every client may do this, whether the chores are its own or not.
        """
        with self._lock:
            if self._is_moving or not self.may_be_due:
                return False
            self._is_moving = True
        try:
            if not self._pending:
                yield from self._find_due()
            return (yield from self._move())
        finally:
            self._is_moving = False
            self._find_at = self._engine.clock.now() + _PAUSE_S

    def _find_due(self) -> Steps[None]:
        """Note what is due, and when the next items may be."""
        store, delayed = self._store, self._layout.delayed
        # Before the folders are read: the changes count whatever is added to them later.
        changes, now, self._pending = (yield from store.state()).changes, time.time(), []
        next_due = math.inf

        def opened(folder: str, seconds: int) -> Steps[tuple[dict[str, str], float]]:
            """What ``folder`` names, by its keys, that may be due; and when the next may be."""
            keys = (yield from store.read(folder)).values
            names = {key: key.rpartition("/")[2] for key in keys}
            opens = {key: int(name.partition(".")[0]) * seconds for key, name in names.items()}
            later = min((at for at in opens.values() if at > now), default=math.inf)
            return {key: name for key, name in names.items() if opens[key] <= now}, later

        def clear(key: str, folder: str) -> Steps[None]:
            """Take ``folder``, which was empty, out of use, unless anything was added since."""
            expected = Expect(self._layout.changes, changes)
            yield from store.write([expected, *emptied(key, folder)])

        hours, later = yield from opened(delayed.hours, 3600)
        next_due = min(next_due, later)
        for hour_key, hour in hours.items():
            slots, later = yield from opened(delayed.slots(hour), 60)
            next_due = min(next_due, later)
            for slot_key, slot in slots.items():
                found = serials((yield from store.read(delayed.folder(slot))))
                for one, (key, stored) in found.items():
                    retry = Retry.decode(key, stored)
                    if retry.due <= now:
                        self._pending.append((retry.due, one, key, retry))
                    else:
                        next_due = min(next_due, retry.due)
                if not found:
                    yield from clear(slot_key, delayed.folder(slot))
            if not slots and later == math.inf:
                yield from clear(hour_key, delayed.slots(hour))
        self._due_at, self._due = changes, next_due

    def _move(self) -> Steps[bool]:
        """Make the first of what is due ready; whether there was any."""
        self._pending.sort(key=lambda item: item[:2])
        moved = self._pending[:_MOVED]
        if not moved:
            return False
        operations: list[Operation] = [Put(self._layout.changes, b"")]
        for _, one, key, retry in moved:
            operations += ending(key)
            operations += creating(self._layout.retry(one), retry.encode())
        if (yield from self._store.write(operations)) is Outcome.MADE:
            del self._pending[:_MOVED]
        else:  # another client does it, or an operator has removed one of them: look again
            self._pending, self._due_at = [], -1
        return True


def _without(claims: Mapping[Serial, Claim], workers: Snapshot) -> dict[Serial, Claim]:
    """Those of ``claims`` whose worker is not among ``workers``, all of whom are listed."""
    alive = {(one.key, one.order) for one in workers.contenders}
    return {one: claim for one, claim in claims.items() if (claim.worker, claim.order) not in alive}
