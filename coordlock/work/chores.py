"""What one consumer's client does for all: it takes items away from workers that have ended.

A contender in the queue of the chores says which client that is. Its session bounds it, by the
service's time: when the client has gone, another takes its place. The other clients follow that
queue, and send nothing while it has a contender.

A look for claims of dead workers comes once a second, and less often the more claims there are, so
that the claims of a thousand workers are no burden. It comes seldom while the queue is quiet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from typing import Final

from coordlock.backend import Observation
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
from coordlock.work.layout import Serial, ending
from coordlock.work.records import Limits, Record, serials
from coordlock.work.store import Outcome, Store
from coordlock.work.workers import Workers

__all__ = ["Chores", "log_dead"]

log = Log("coordlock")

#: Seconds after a client's last call until it leaves the chores to others.
_IDLE_S: Final = 5.0
#: The longest pause before a client takes the chores that no other does: it is random.
_SPREAD_S: Final = 1.0
#: Seconds between two looks at the claims, and how many more for each claim.
_LOOK_S: Final = 1.0
_LOOK_PER_CLAIM_S: Final = 0.01
#: Seconds between two looks where there are no claims, and no news.
_QUIET_S: Final = 10.0


def log_dead(name: str, item: Serial, record: Record) -> None:
    """Log that the ``item`` of the work queue ``name`` is dead, if its ``record`` says so."""
    if record.reason:
        id = str(item.id)
        facts = {"coordlock_name": name, "coordlock_kind": "item", "coordlock_item": id}
        text = "work queue %r: item %s is dead: %s"
        log.warning(text, name, id, record.reason, extra=facts)


class Chores:
    """Looks after one queue, if this client is the one that does. Safe for threads."""

    def __init__(
        self, store: Store, limits: Limits, workers: Workers, is_waiting: Callable[[], bool]
    ) -> None:
        """``is_waiting`` is whether a call waits for an item."""
        self._store: Final = store
        self._engine: Final = store.engine
        self._limits: Final = limits
        self._workers: Final = workers
        self._is_waiting: Final = is_waiting
        self._changed: Final = Condition()
        self._is_running = False
        #: Until when it goes on, in seconds of the client's clock.
        self._until = -math.inf
        #: The contender by which the chores are this client's.
        self._ticket: Ticket | None = None
        #: When to look at the claims, and when at the earliest, in seconds of the client's clock.
        self._look_at = self._soonest = -math.inf

    @property
    def is_ours(self) -> bool:
        """Whether this client does the chores."""
        return self._ticket is not None and self._ticket.lost is None

    def notify(self) -> None:
        """The queue has changed: others may have claims by now."""
        if self._soonest < self._look_at:
            self._look_at = self._soonest
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
        queue, clock = Queue(self._store.layout.chores), self._engine.clock
        session = self._engine.sessions.latest
        following = self._store.backend.follow(queue, self._changed.notify)
        try:
            while clock.now() < self._until or self._is_waiting():
                notified = self._changed.notified
                try:
                    if (yield from self._is_owner(following)) and clock.now() >= self._look_at:
                        yield from self._find_void()
                except CoordlockError as error:  # the next look may succeed
                    self._engine.check()
                    log.debug("work queue %r: %s", self._store.layout.name, error)
                    self._look_at = clock.now() + _LOOK_S
                latest = self._engine.sessions.latest
                # As where the service refused a password, or has lost its data.
                if following.view.ended is not None or session is not latest:
                    following.cancel()
                    session = latest
                    following = self._store.backend.follow(queue, self._changed.notify)
                pause = min(max(0.0, self._look_at - clock.now()), _LOOK_S)
                yield within(self._engine.timers, notified, pause or _LOOK_S)
        finally:
            following.cancel()
            self._leave()
            self._workers.retire()
            self._is_running = False
            if clock.now() < self._until:  # there was a call meanwhile
                self.go_on()

    def _is_owner(self, following: Observation[Snapshot]) -> Steps[bool]:
        """Whether the chores are this client's, by now."""
        if self.is_ours:
            return True
        self._leave()
        for seconds in (self._engine.timers.jitter(_SPREAD_S), 0.0):
            if (view := following.view).ended is not None:
                raise copy(view.ended)
            if view.state is None or view.state.contenders:
                return False  # there is news of each change
            yield sleep(self._engine.timers, seconds)
        layout = self._store.layout
        self._ticket = ticket = yield from acquisition(
            self._engine, {layout.chores: Mode.EX}, 0, kind="work queue", name=layout.name
        )
        ticket.call, self._look_at = None, -math.inf
        ticket.end.add_done_callback(lambda _: self._changed.notify())
        return True

    def _leave(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.withdraw()

    def _find_void(self) -> Steps[None]:
        """Let the items of void claims be taken again, or bury them."""
        store, layout, now = self._store, self._store.layout, self._engine.clock.now()
        self._soonest, self._look_at = now + _LOOK_S, now + _QUIET_S
        if not (found := serials((yield from store.read(layout.claims)))):
            return
        self._soonest = self._look_at = now + _LOOK_S + _LOOK_PER_CLAIM_S * len(found)
        claims = {one: Record.decode(key, stored) for one, (key, stored) in found.items()}
        # Only now, so that a worker that is missing has left. This may show the past; so what is
        # missing is asked for once more, by the costlier reading that does not.
        void = _without(claims, (yield from store.workers(owners=False)))
        if void:
            void = _without(void, (yield from store.workers()))
        for one, claim in void.items():
            reason = f"failed {claim.failures + 1} times, at last because its worker ended"
            record = claim.after(self._limits, failed=True, reason=reason)
            key, stored = found[one]
            ended = *ending(key, stored.version), *record.keeping(layout, one)
            if (yield from store.write(ended)) is Outcome.MADE:
                log_dead(layout.name, one, record)


def _without(claims: Mapping[Serial, Record], workers: Snapshot) -> dict[Serial, Record]:
    """Those of ``claims`` whose worker is not among ``workers``, all of whom are listed."""
    alive = {(one.key, one.order) for one in workers.contenders}
    return {one: claim for one, claim in claims.items() if (claim.worker, claim.order) not in alive}
