"""How one client waits for items and claims them, for all of its calls.

A claim is one write, guarded by a worker's contender. It takes away what makes the item ready (it
moves the lane on, or deletes the key of the retry) and makes the key of the claim. It expects what
it takes away as that was read, and that never comes back. So an item has one claim at a time.

A claim is void when its contender has left its queue. Departed contenders never return, and each
later write of that worker is guarded by its contender, so none of them comes through. So a client
that reads the claim, and then does not find the contender among the workers, may take its place.

A claim goes on where its caller gives up. Then another call of this client gets the item, or it is
given back, which counts for nothing. So only a session that ends leaves a claim behind.

While nothing is ready, the client follows the queue's state. A ready item wakes all clients that
follow. So each pauses at random before its claim, but for the one that does the chores: the others
see that the item is taken, and send nothing. The pause doubles with each refused claim.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Final

from coordlock.backend import Listing, Observation
from coordlock.backend.data import Read
from coordlock.errors import ClientClosed, Evicted, SessionLost
from coordlock.runtime.clock import soon, within
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Condition, Promise
from coordlock.work.chores import Chores, Limits, returning
from coordlock.work.layout import Serial, creating, ending
from coordlock.work.ready import Candidate, Ready
from coordlock.work.records import Claim, Content, Retry, State, serials
from coordlock.work.store import Outcome, Store, Writing
from coordlock.work.workers import Worker, Workers

__all__ = ["Claimed", "Consumer", "Wanted"]

#: The state is read though candidates are known: after so many seconds, so that what others gave
#: back is claimed soon; and among other consumers after so many claims, so that no item is passed
#: over for long.
_REREAD_S: Final = 1.0
_CLAIMS: Final = 16
#: For how many seconds an item is offered to a call that does not take it.
_PATIENCE_S: Final = 1.0
#: The shortest pause before a claim of a client that was neither refused nor successful lately:
#: meanwhile it learns of the claim of the client that does the chores. The longest is twice as
#: long. A client that finds items all the time pauses only after a refused claim. How often a
#: pause may double, and be halved.
_PAUSE_S: Final = 0.25
_PAUSE_AT_WORK_S: Final = 0.01
_DOUBLINGS: Final = 4
_HALVINGS: Final = 5


@dataclass(frozen=True)
class Claimed:
    """An item that a worker of this client has claimed."""

    serial: Serial
    claim: Claim
    content: Content
    worker: Worker

    def retry(self, *, due: float = 0.0, delivered: bool = True, failed: bool = False) -> Retry:
        """The item's record when it is given back, ``delivered`` or not, and ``failed`` or not."""
        claim = self.claim
        return Retry(due, claim.token, claim.deliveries + delivered, claim.failures + failed)


class Wanted:
    """A call that wants an item."""

    __slots__ = ("answer", "is_taken", "offered", "once", "refused", "saw_nothing", "since")

    def __init__(self, *, once: bool, since: float) -> None:
        #: Whether an item is offered: `take` it. False where it looks ``once``, and none is ready.
        self.answer: Final[Promise[bool]] = Promise()
        self.offered: Final[list[Claimed]] = []
        #: Whether the call has taken it, before it was revoked.
        self.is_taken: Final[Promise[bool]] = Promise()
        self.once: Final = once
        #: When it came, in seconds of the client's clock.
        self.since: Final = since
        #: Whether nothing was ready when the client looked last.
        self.saw_nothing = False
        #: How many claims were refused since then.
        self.refused = 0

    def offer(self, claimed: Claimed) -> bool:
        """Offer it what was claimed; False where it does not wait any more."""
        self.offered.append(claimed)
        return self.answer.resolve(True) or self._withdrawn() is None

    def take(self) -> Claimed | None:
        """The item that was offered; None where it was revoked."""
        return self.offered[0] if self.is_taken.resolve(True) else None

    def revoke(self, *, is_over: bool = False) -> Claimed | None:
        """What is to be given back: what was not taken, or all where the call ``is_over``."""
        may_be_given_back = self.is_taken.resolve(False) or (is_over and self.is_taken.result())
        return self._withdrawn() if may_be_given_back else None

    def _withdrawn(self) -> Claimed | None:
        try:
            return self.offered.pop()
        except IndexError:
            return None


class Consumer:
    """Claims items of one queue for one client. Safe for threads."""

    def __init__(self, store: Store, limits: Limits, label: str | None) -> None:
        timers = store.engine.timers
        self.store: Final = store
        self.ready = Ready(store.layout, lambda many: int(timers.jitter(many)) % many)
        self.workers = Workers(store, label)
        self.chores: Final = Chores(store, limits, self)
        self._limits: Final = limits
        self._lock: Final = threading.RLock()
        #: The calls that wait, in the order in which they came.
        self._calls: Final[list[Wanted]] = []
        self._is_serving = False
        #: Notified when there is a call, news of the state, or the end of a claim.
        self._changed: Final = Condition()
        self._following: Observation[Listing] | None = None
        #: When the last reading of the state began, in seconds of the client's clock.
        self.read_at = -math.inf
        self._state: State | None = None
        #: How many claims are under way, and how many were made since the last reading.
        self._under_way = self._made = 0
        #: How many more claims were refused than made lately, and whether the last one was.
        self._refusals = 0
        self._was_refused = False

    # Its calls

    @property
    def is_waiting(self) -> bool:
        """Whether a call waits for an item."""
        return self._is_serving

    @property
    def is_following(self) -> bool:
        """Whether it learns of each change of the state without a reading."""
        return self._following is not None and self._following.view.stale_since is None

    def add(self, wanted: Wanted) -> None:
        """Let ``wanted`` wait for its answer."""
        self._calls.append(wanted)
        # Where Ctrl-C cannot strike, because other calls wait, too.
        soon(self.store.engine.timers, self._begin)
        self.store.engine.check()  # after it was closed, nothing begins

    def abandon(self, wanted: Wanted) -> None:
        """The caller has given up: take back what was claimed, or will be. Idempotent."""
        wanted.answer.resolve(False)
        self._revoke(wanted, is_over=True)
        soon(self.store.engine.timers, self._changed.notify)

    def _begin(self) -> None:
        with self._lock:
            begins = not self._is_serving
            self._is_serving = True
        if begins:
            run_in_background(self._serve(), go_on=self._go_on)
        else:
            self._changed.notify()

    def _go_on(self, action: Callable[[], None]) -> None:
        """Call ``action`` where Ctrl-C cannot strike, and after a `close` at once."""
        if self.store.engine.closed:
            action()
        else:
            soon(self.store.engine.timers, action)

    def _waiting(self) -> list[Wanted]:
        with self._lock:
            self._calls[:] = [call for call in self._calls if not call.answer.done()]
            return list(self._calls)

    def _serve(self) -> Steps[None]:
        """Claim items as long as calls wait."""
        while True:
            try:
                yield from self._claiming()
            except Exception as error:
                for call in self._waiting():
                    call.answer.fail(copy(error))
            finally:
                self._unfollow()
            with self._lock:
                self._is_serving = bool(self._waiting())
                if not self._is_serving:
                    return

    def _claiming(self) -> Steps[None]:
        engine, clock = self.store.engine, self.store.engine.clock
        claim_at: float | None = None
        shown: Listing | None = None
        while calls := self._waiting():
            self.chores.go_on()
            notified = self._changed.notified  # before the looks, so that later changes wake
            if (following := self._following) is not None:
                if following.view.ended is not None:
                    engine.check()
                    raise copy(following.view.ended)
                if (listing := following.view.state) is not None and listing is not shown:
                    shown = listing
                    yield from self._learn((yield from self.store.state_in(listing)))
            if self.read_at == -math.inf or (not self.is_following and self._is_due):
                yield from self.look()
            if not self.chores.are_others and (yield from self.chores.make_ready()):
                yield from self.look()
            count, now = self.ready.count, clock.now()
            seconds: float | None = None if self.is_following else _REREAD_S
            if len(calls) <= self._under_way:
                claim_at = None
            elif count or self._was_refused:
                claim_at = now + self._pause(count or 1) if claim_at is None else claim_at
                if (seconds := claim_at - now) <= 0:
                    claim_at = None
                    was_refused, self._was_refused = self._was_refused, False
                    if was_refused and not self.is_following:
                        self.look_again()
                    else:
                        self._begin_claim()
                    continue
            else:
                claim_at = None
                if not self._under_way and (yield from self._saw_nothing(calls)):
                    continue
            yield within(engine.timers, notified, seconds)

    def _saw_nothing(self, calls: list[Wanted]) -> Steps[bool]:
        """Nothing is ready; whether to look at what is known again before the next wait."""
        following = self._following
        if any(call.since > self.read_at for call in calls if call.once or following is None):
            yield from self.look()
            return True
        for call in calls:
            call.saw_nothing, call.refused = True, 0
            if call.once:
                call.answer.resolve(False)
        if following is None and not all(call.once for call in calls):
            state = self.store.layout.state
            self._following = self.store.backend.follow(state, self._changed.notify)
        return following is None

    def _unfollow(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.cancel()

    def _pause(self, count: int) -> float:
        """Seconds until a claim, where so many can be made at the same time."""
        if not self._was_refused and (self._following is None or self.chores.is_ours):
            return 0.0
        shortest = _PAUSE_S if self.is_following else _PAUSE_AT_WORK_S
        pause = shortest + self.store.engine.timers.jitter(shortest)
        return pause * 2.0**self._refusals / count

    # What may be claimed

    @property
    def _is_due(self) -> bool:
        """Whether it is time to look."""
        now = self.store.engine.clock.now()
        is_passed_over = self._made >= _CLAIMS and not self.ready.is_alone(now)
        return is_passed_over or now - self.read_at >= _REREAD_S

    def look(self) -> Steps[None]:
        """Read what may be claimed now."""
        began = self.store.engine.clock.now()
        state = yield from self.store.state()
        self.read_at, self._made = began, 0
        yield from self._learn(state)

    def _learn(self, state: State) -> Steps[None]:
        if state != self._state:
            self._state = state
            self.chores.learn(state)
        if self.ready.learn(state, self.store.engine.clock.now()):
            found = serials((yield from self.store.read(self.store.layout.retries)))
            retries = {one: Retry.decode(key, stored) for one, (key, stored) in found.items()}
            self.ready.learn_retries(state.changes, retries)

    def look_again(self) -> None:
        """What is known is old: let the next claim look first."""
        self.read_at = -math.inf

    # Claims

    def _begin_claim(self) -> None:
        candidate = self.ready.choose(self.store.engine.clock.now())
        if candidate is None:  # what was ready is being claimed by now
            return
        with self._lock:
            self._under_way += 1
        run_in_background(self._claim(candidate)).add_done_callback(self._claimed)

    def _claimed(self, claiming: Promise[Claimed | None]) -> None:
        error = claiming.exception()
        with self._lock:
            self._under_way -= 1
        if error is not None:
            any(call.answer.fail(copy(error)) for call in self._waiting())
        elif (claimed := claiming.result()) is not None:
            self._hand_over(claimed)
        self._changed.notify()

    def _hand_over(self, claimed: Claimed) -> None:
        timers = self.store.engine.timers
        for call in self._waiting():
            if call.offer(claimed):
                # An event loop that is blocked keeps no item from others.
                with suppress(ClientClosed, RuntimeError):
                    when = timers.clock.now() + _PATIENCE_S
                    timers.call_at(when, partial(self._revoke, call))
                return
        self._take_back(claimed)

    def _revoke(self, wanted: Wanted, *, is_over: bool = False) -> None:
        if (claimed := wanted.revoke(is_over=is_over)) is not None:
            self._take_back(claimed)

    def _claim(self, candidate: Candidate) -> Steps[Claimed | None]:
        """Claim the item, or bury it; None where it is not to be had."""
        outcome, claimed, worker = Outcome.UNCLEAR, None, None
        try:
            if (reason := self._limits.reason(candidate.retry)) is not None:
                burying = returning(
                    self.store.layout, candidate.before, candidate.retry, self._limits, reason
                )
                yield from self.store.write([*candidate.taking, *burying])
                outcome = Outcome.MADE  # it is ready no longer, whichever client has done that
                return None
            worker = yield from self.workers.get(candidate.retry.token)
            outcome, claimed = yield from self._write(candidate, worker)
            return claimed
        except (Evicted, SessionLost):
            if worker is None:
                raise
            return None
        finally:
            self._note(outcome)
            self.ready.ended(candidate, outcome, self.store.engine.clock.now())
            if worker is not None and claimed is None:
                self.workers.put_back(worker)

    def _write(self, candidate: Candidate, worker: Worker) -> Steps[tuple[Outcome, Claimed | None]]:
        store, layout, retry = self.store, self.store.layout, candidate.retry
        me, one = worker.ticket.contenders[0], candidate.before.next
        claim = Claim(
            me.key, me.order, me.token or 0, time.time(), retry.deliveries, retry.failures
        )
        key, item = layout.claim(one), layout.item(one.id)
        operations = [*candidate.taking, *creating(key, claim.encode()), Read(item)]
        try:
            writing = Writing(store, operations, [me])
            outcome = yield from writing.steps()
            if outcome is Outcome.UNCLEAR:
                there = (yield from store.read(key)).values.get(key)
                is_mine = there is not None and Claim.decode(key, there).is_of(me)
                outcome = Outcome.MADE if is_mine else Outcome.REFUSED
            if outcome is not Outcome.MADE:
                return outcome, None
            found = writing.written or (yield from store.read(item))
            stored = found.values.get(item)
            if stored is None:  # an operator has removed it
                if (yield from store.write(ending(key), [me])) is not Outcome.MADE:
                    worker.ticket.withdraw()  # it may be evicted: see `taken_away`
            elif worker.ticket.lost is None:
                return outcome, Claimed(one, claim, Content.decode(item, stored), worker)
            return outcome, None
        except BaseException:
            worker.ticket.withdraw()  # so that the claim is void, if it was made
            raise

    def _note(self, outcome: Outcome) -> None:
        """Learn from a claim for the next pause."""
        self._was_refused = outcome is Outcome.REFUSED
        if outcome is Outcome.MADE:
            self._made += 1
            self._refusals = max(self._refusals - 1, -_HALVINGS)
        elif self._was_refused:
            self._refusals = min(max(self._refusals, 0) + 1, _DOUBLINGS)
            for call in self._waiting():
                call.saw_nothing, call.refused = False, call.refused + 1
        else:
            self.look_again()

    def give_back(self, claimed: Claimed, retry: Retry) -> Promise[None]:
        """Let an item be claimed again, in the background; kept when that is certain.

        Fails where the claim is void, or ends otherwise: then others find that.
        """
        return run_in_background(self._give_back(claimed, retry))

    def _give_back(self, claimed: Claimed, retry: Retry) -> Steps[None]:
        layout, worker = self.store.layout, claimed.worker
        operations = [*ending(layout.claim(claimed.serial))]
        operations += returning(layout, claimed.serial, retry)
        try:
            guards = worker.ticket.contenders
            if (yield from self.store.write(operations, guards)) is not Outcome.MADE:
                worker.ticket.withdraw()  # it may be evicted: see `taken_away`
            self.put_back(worker)
        except BaseException:
            worker.ticket.withdraw()
            raise
        finally:
            self.look_again()

    def _take_back(self, claimed: Claimed) -> None:
        """Give an item back that no caller got. It counts for nothing."""
        self.give_back(claimed, claimed.retry(delivered=False))

    def put_back(self, worker: Worker) -> None:
        """``worker`` has no item any more: keep it for the next one, for some seconds."""
        self.workers.put_back(worker)
        self.chores.go_on()
