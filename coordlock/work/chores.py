"""What one consumer's client does for all: it takes items away from workers that have ended.

It is the client that holds a lock of its own, the chores. The others follow its queue, and send
nothing while it is held.

A look for claims of dead workers comes once a second, and less often the more claims there are, so
that the claims of a thousand workers are no burden.
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
from coordlock.work.layout import ending
from coordlock.work.records import Claim, Ended, entry_in
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


def log_dead(name: str, ended: Ended) -> None:
    """Log that an item of the work queue ``name`` is dead, if it is."""
    if ended.reason:
        id = ended.entry.id
        facts = {"coordlock_name": name, "coordlock_kind": "item", "coordlock_item": id}
        text = "work queue %r: item %s is dead: %s"
        log.warning(text, name, id, ended.reason, extra=facts)


class Chores:
    """Looks after one queue, if this client is the one that does. Safe for threads."""

    def __init__(
        self, store: Store, max_failures: int, workers: Workers, is_waiting: Callable[[], bool]
    ) -> None:
        """``is_waiting`` is whether a call waits for an item."""
        self._store: Final = store
        self._engine: Final = store.engine
        self._max_failures: Final = max_failures
        self._workers: Final = workers
        self._is_waiting: Final = is_waiting
        self._changed: Final = Condition()
        self._is_running = False
        #: Until when it goes on, in seconds of the client's clock.
        self._until = -math.inf
        #: The contender that holds the chores.
        self._ticket: Ticket | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this client does the chores."""
        return self._ticket is not None and self._ticket.lost is None

    @property
    def is_wanted(self) -> bool:
        """Whether a call waits, or there was one some seconds ago."""
        return self._engine.clock.now() < self._until or self._is_waiting()

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
        engine, layout = self._engine, self._store.layout
        try:
            while self.is_wanted:
                following = engine.backend.follow(Queue(layout.chores), self._changed.notify)
                try:
                    yield from self._follow(following)
                except CoordlockError as error:  # the next attempt may succeed
                    engine.check()
                    log.debug("work queue %r: %s", layout.name, error)
                    yield sleep(engine.timers, _LOOK_S)
                finally:
                    following.cancel()
        finally:
            self._workers.retire()
            self._is_running = False
            if self.is_wanted:  # there was a call meanwhile
                soon(engine.timers, self._begin)

    def _follow(self, following: Observation[Snapshot]) -> Steps[None]:
        """Do the chores whenever no other client does, until this one is idle.

        Or until its session has ended: the service may have lost its data with one.
        """
        engine, session = self._engine, self._engine.sessions.latest
        while self.is_wanted and session is engine.sessions.latest:
            notified = self._changed.notified
            if (view := following.view).ended is not None:
                raise copy(view.ended)
            if view.state is not None and not view.state.contenders:
                yield sleep(engine.timers, engine.timers.jitter(_SPREAD_S))
                if following.view is view:
                    yield from self._hold()
            yield within(engine.timers, notified, _LOOK_S)

    def _hold(self) -> Steps[None]:
        """Do the chores until this client is idle, if no other client was faster."""
        engine, layout = self._engine, self._store.layout
        self._ticket = ticket = yield from acquisition(
            engine, {layout.chores: Mode.EX}, 0, kind="work queue", name=layout.name
        )
        ticket.call = None
        try:
            while self.is_wanted and ticket.lost is None:
                claims = yield from self._find_void()
                pause = _LOOK_S + _LOOK_PER_CLAIM_S * claims
                yield within(engine.timers, ticket.end, pause)
        finally:
            self._ticket = None
            ticket.withdraw()

    def _find_void(self) -> Steps[int]:
        """Let the items of void claims be taken again, or bury them; how many claims there are."""
        store, layout = self._store, self._store.layout
        if not (found := (yield from store.read(layout.claims)).values):
            return 0
        claims = {key: Claim.decode(key, stored) for key, stored in found.items()}
        # Only now, so that a worker that is missing has left. This may show the past; so what is
        # missing is asked for once more, by the costlier reading that does not.
        void = _without(claims, (yield from store.workers(owners=False)))
        if void:
            void = _without(void, (yield from store.workers()))
        for key in void:
            claim = entry_in(key)
            reason = f"failed {claim.failures + 1} times, at last because its worker ended"
            ended = Ended.of(claim, self._max_failures, failed=True, reason=reason)
            operations = *ending(key, found[key].version), *ended.keeping(layout)
            if (yield from store.write(operations)) is Outcome.MADE:
                log_dead(layout.name, ended)
        return len(claims)


def _without(claims: Mapping[str, Claim], workers: Snapshot) -> dict[str, Claim]:
    """Those of ``claims`` whose worker is not among ``workers``, all of whom are listed."""
    alive = set(map(Claim.of, workers.contenders))
    return {key: claim for key, claim in claims.items() if claim not in alive}
