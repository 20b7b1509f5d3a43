"""How one client claims items. Waiting for them is in `coordlock.work.search`.

A claim is one write, guarded by a worker's contender. It takes away what makes the item ready (it
moves the lane on, or deletes the key below ``again``) and makes the key of the claim. It expects
what it takes away as that was read, and that never comes back. So an item has one claim at a time.

A claim is void when its contender has left its queue. Departed contenders never return, and each
later write of that worker is guarded by its contender, so none of them comes through. So whoever
reads the claim, and then does not find the contender among the workers, may take the claim's place.

A claim goes on where its caller gives up, and is taken back then, and counts for nothing. So only a
session that ends leaves a claim behind.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from coordlock.backend.data import Read
from coordlock.errors import Evicted, SessionLost
from coordlock.runtime.caller import running_loop
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise
from coordlock.work.janitor import Janitor, Limits, returning
from coordlock.work.layout import Serial, creating, ending
from coordlock.work.ready import Candidate, Ready
from coordlock.work.records import Again, Claim, Content, State, serials
from coordlock.work.store import Outcome, Store, Writing
from coordlock.work.turns import Turns
from coordlock.work.workers import Worker, Workers

__all__ = ["Claimed", "Consumer"]

#: The state is read though candidates are known: after so many seconds, so that what others gave
#: back is claimed soon; and among other consumers after so many claims, so that no item is passed
#: over for long.
_REREAD: Final = 0.5
_CLAIMS: Final = 16


@dataclass(frozen=True)
class Claimed:
    """An item that a worker of this client has claimed."""

    serial: Serial
    claim: Claim
    content: Content
    worker: Worker

    def again(self, *, due: float = 0.0, delivered: bool = True, failed: bool = False) -> Again:
        """The item's record when it is given back, ``delivered`` or not, and ``failed`` or not."""
        claim = self.claim
        return Again(due, claim.token, claim.deliveries + delivered, claim.failures + failed)


class Consumer:
    """Claims items of one queue for one client. Safe for threads."""

    def __init__(self, store: Store) -> None:
        timers = store.engine.timers
        self.store: Final = store
        self.ready: Final = Ready(store.layout, lambda many: int(timers.jitter(many)) % many)
        self.workers: Final = Workers(store)
        self.janitor: Final = Janitor(store)
        #: By the event loop, whose calls stand still together; those of threads by this.
        self._turns: Final[WeakKeyDictionary[object, Turns]] = WeakKeyDictionary()
        #: When the state was read last, in seconds of the client's clock, and its bell.
        self._read_at = -math.inf
        self.bell = -1
        self._state: State | None = None
        #: How many claims were made since.
        self._claims = 0

    @property
    def turns(self) -> Turns:
        """Those of this event loop's calls, or of the threads'."""
        return self._turns.setdefault(running_loop() or self, Turns())

    @property
    def is_due(self) -> bool:
        """Whether it is time to look."""
        if self._claims >= _CLAIMS and not self.ready.is_alone:
            return True
        return self.store.engine.clock.now() - self._read_at >= _REREAD

    def learn(self, state: State) -> Steps[None]:
        """Take in ``state``, and what was given back since the last time."""
        now = self.store.engine.clock.now()
        self._read_at, self._claims, self.bell = now, 0, max(self.bell, state.bell)
        if state != self._state:  # others may have claims by now
            self._state = state
            self.janitor.expect()
        if self.ready.learn(state, now):
            found = serials((yield from self.store.read(self.store.layout.again)))
            again = {one: Again.decode(key, stored) for one, (key, stored) in found.items()}
            self.ready.learn_again(state.bell, again)

    def look(self) -> Steps[None]:
        """Read what may be claimed now."""
        yield from self.learn((yield from self.store.parts()))

    def look_again(self) -> None:
        """What is known is old: let the next claim look first."""
        self._read_at = -math.inf

    def claim(
        self, label: str | None, limits: Limits, *, is_fresh: bool
    ) -> Steps[Claimed | Outcome | None]:
        """Claim the next candidate; `Outcome.REFUSED` where it is not to be had, or has gone.

        None where there is no candidate. To be run in the background: it ends without its caller.
        For ``is_fresh`` see `Ready.choose`.
        """
        candidate = self.ready.choose(is_fresh=is_fresh)
        if candidate is None:
            return None
        try:
            if (reason := limits.reason(candidate.again)) is not None:
                yield from self._bury(candidate, reason, limits)
                return Outcome.REFUSED
            worker = yield from self.workers.get(label, candidate.again.token)
        except BaseException:
            self._end(candidate, Outcome.UNCLEAR)
            raise
        return (yield from self._claim(candidate, worker)) or Outcome.REFUSED

    def _claim(self, candidate: Candidate, worker: Worker) -> Steps[Claimed | None]:
        store, layout, again = self.store, self.store.layout, candidate.again
        me, one = worker.ticket.contenders[0], candidate.before.next
        claim = Claim(
            me.key, me.order, me.token or 0, time.time(), again.deliveries, again.failures
        )
        key, item = layout.claim(one), layout.item(one.id)
        operations = [*candidate.taking, *creating(key, claim.encode()), Read(item)]
        known, claimed = Outcome.UNCLEAR, None
        try:
            writing = Writing(store, operations, [me])
            outcome = yield from writing.steps()
            if outcome is Outcome.UNCLEAR:
                there = (yield from store.read(key)).values.get(key)
                is_mine = there is not None and Claim.decode(key, there).is_of(me)
                outcome = Outcome.MADE if is_mine else Outcome.REFUSED
            if outcome is not Outcome.MADE:
                if writing.refused_by != layout.bell:
                    known = Outcome.REFUSED
                return None
            known = Outcome.MADE
            self._claims += 1
            self.janitor.expect()
            found = writing.written or (yield from store.read(item))
            stored = found.values.get(item)
            if stored is None:  # somebody has removed it
                if (yield from store.write(ending(key), [me])) is not Outcome.MADE:
                    worker.ticket.withdraw()  # it may be evicted: see `taken_away`
            elif worker.ticket.lost is None:
                content = Content.decode(item, stored)
                claimed = Claimed(one, claim, content, worker)
            return claimed
        except BaseException as error:
            worker.ticket.withdraw()  # so that the claim is void, if it was made
            if isinstance(error, Evicted | SessionLost):
                return None
            raise
        finally:
            self._end(candidate, known)
            if claimed is None:
                self.workers.put_back(worker)

    def give_back(self, claimed: Claimed, again: Again) -> Promise[None]:
        """Let an item be claimed again, in the background; kept when that is certain.

        Fails where the claim is void, or ends otherwise: then others find that.
        """
        return run_in_background(self._give_back(claimed, again))

    def _give_back(self, claimed: Claimed, again: Again) -> Steps[None]:
        layout, worker = self.store.layout, claimed.worker
        operations = [*ending(layout.claim(claimed.serial))]
        operations += returning(layout, claimed.serial, again)
        try:
            guards = worker.ticket.contenders
            if (yield from self.store.write(operations, guards)) is not Outcome.MADE:
                worker.ticket.withdraw()  # it may be evicted: see `taken_away`
            self.workers.put_back(worker)
        except BaseException:
            worker.ticket.withdraw()
            raise
        finally:
            self.look_again()

    def take_back(self, claiming: Promise[Claimed | Outcome | None]) -> None:
        """Take back a claim that no caller got. It counts for nothing."""
        if claiming.exception() is None and isinstance(claimed := claiming.result(), Claimed):
            self.give_back(claimed, claimed.again(delivered=False))

    def _bury(self, candidate: Candidate, reason: str, limits: Limits) -> Steps[None]:
        layout = self.store.layout
        burying = returning(layout, candidate.before, candidate.again, limits, reason)
        yield from self.store.write([*candidate.taking, *burying])
        self._end(candidate, Outcome.MADE)  # it is ready no longer, whoever has done that

    def _end(self, candidate: Candidate, outcome: Outcome) -> None:
        self.ready.ended(candidate, outcome, self.store.engine.clock.now())
