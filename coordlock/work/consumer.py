"""How one client waits for items and claims them, for all of its calls.

A claim is one write, guarded by a worker's contender. It takes away what makes the item ready (it
moves the lane on, or deletes the key of an item that waits) and makes the key of the claim. It
expects what it takes away as that was read, and that never comes back. So an item has one claim at
a time.

A claim is void when its contender has left its queue. Departed contenders never return, and each
later write of that worker is guarded by its contender, so none of them comes through. So a client
that reads the claim, and then does not find the contender among the workers, may take its place.

Each call claims for itself, so a busy client needs no news. A claim goes on where its caller gives
up. Then the item is given back, which counts for nothing. So only a session that ends leaves a
claim behind.

While nothing is ready, the client follows the queue's state, once for all calls that wait. A ready
item is news for all clients that follow. So each pauses at random before it wakes a call, but for
the one that does the chores: the others see that the item is taken, and send nothing. After the
pause they look for due items, of which they see no claims. The pause doubles with each refused
claim.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

from coordlock.backend import Listing, Observation
from coordlock.backend.data import Read
from coordlock.errors import Evicted, SessionLost
from coordlock.kernel.session import Session
from coordlock.runtime.clock import sleep, soon, within
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Condition, Promise
from coordlock.work.chores import Chores, log_dead
from coordlock.work.layout import Serial, creating, ending
from coordlock.work.ready import ENOUGH, Candidate, Ready
from coordlock.work.records import Content, Limits, Record, State
from coordlock.work.store import Outcome, Store, Writing
from coordlock.work.workers import Worker, Workers

__all__ = ["Claimed", "Consumer", "Wanted"]

#: The state is read though candidates are known: after so many seconds, so that what others gave
#: back is claimed soon; and among other consumers after so many claims, so that no item is passed
#: over for long.
_REREAD_S: Final = 1.0
_CLAIMS: Final = 16
#: Seconds for a call that was woken to begin its claim, before the next one is woken: its event
#: loop may be blocked.
_PATIENCE_S: Final = 1.0
#: Seconds after which a client that follows the state checks whether its session is another one.
_CHECK_S: Final = 5.0
#: The shortest wait for an item to become due.
_SHORTEST_S: Final = 0.02
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
    claim: Record
    content: Content
    worker: Worker


class Wanted:
    """A call that wants an item."""

    __slots__ = ("claim", "is_left", "once", "refused", "saw_nothing", "since", "woken")

    def __init__(self, *, once: bool, since: float) -> None:
        self.once: Final = once
        #: When it came, in seconds of the client's clock.
        self.since: Final = since
        #: Kept with the item, or with what came of the claim; with None where nothing is ready.
        self.claim: Promise[Claimed | Outcome | None] | None = None
        #: Whether its caller has given up.
        self.is_left = False
        #: Whether nothing was ready when the client looked last.
        self.saw_nothing = False
        #: How many claims were refused since then.
        self.refused = 0
        #: Kept when an item may be ready.
        self.woken: Promise[None] = Promise()


class Consumer:
    """Claims items of one queue for one client. Safe for threads."""

    def __init__(self, store: Store, limits: Limits, label: str | None) -> None:
        timers = store.engine.timers
        self.store: Final = store
        self.ready = Ready(store.layout, lambda many: int(timers.jitter(many)) % many)
        self.workers: Final = Workers(store, label)
        self.limits: Final = limits
        self.chores: Final = Chores(store, limits, self.workers, lambda: self._is_serving)
        self._lock: Final = threading.RLock()
        #: The calls that wait for news, or were woken by news, in the order in which they came.
        self._calls: Final[list[Wanted]] = []
        self._is_serving = False
        #: Notified when a call waits or has ended, and at news of the state.
        self._changed: Final = Condition()
        self._following: Observation[Listing] | None = None
        #: When the last reading of the state began, and the last one that has ended, in seconds of
        #: the client's clock.
        self._look_at = self.read_at = -math.inf
        self._state: State | None = None
        self._finding: Promise[None] | None = None
        #: The session in which the client has learnt what is ready.
        self._session: Session | None = None
        #: How many claims were made since the last reading.
        self._made = 0
        #: How many more claims were refused than made lately, and whether the last one was.
        self._refusals = 0
        self._was_refused = False

    # Its calls

    @property
    def is_following(self) -> bool:
        """Whether it learns of each change of the state without a reading."""
        following = self._following
        return following is not None and following.view.stale_since is None

    def take(self, wanted: Wanted) -> Steps[Claimed | None]:
        """Claim an item as soon as one is ready; None where it looks once, and none is."""
        timers = self.store.engine.timers
        try:
            while True:
                self.chores.go_on()
                if self._is_due and not self.is_following:
                    yield from self.look()
                found = None
                if self.ready.count:
                    found = yield self._claiming(wanted)
                if isinstance(found, Claimed):
                    return found
                if found is Outcome.REFUSED:
                    wanted.saw_nothing, wanted.refused = False, wanted.refused + 1
                    if wanted.once or not self.is_following:
                        yield sleep(timers, self._pause(self.ready.count or 1))
                        yield from self.look()
                        continue
                elif found is not None:
                    continue
                elif wanted.since > self.read_at and (wanted.once or self._following is None):
                    yield from self.look()
                    continue
                else:
                    wanted.saw_nothing, wanted.refused = True, 0
                    if wanted.once:
                        return None
                yield from self._news(wanted)
        finally:
            with self._lock:
                was_waiting = wanted in self._calls
                if was_waiting:
                    self._calls.remove(wanted)
            if was_waiting:
                soon(timers, self._changed.notify)

    def _news(self, wanted: Wanted) -> Steps[None]:
        """Wait until an item may be ready."""
        with self._lock:
            wanted.woken = Promise()
            if wanted not in self._calls:
                self._calls.append(wanted)
        # Where Ctrl-C cannot strike, because other calls wait, too.
        soon(self.store.engine.timers, self._begin)
        self.store.engine.check()  # after it was closed, nothing begins
        yield wanted.woken

    def _claiming(self, wanted: Wanted) -> Promise[Claimed | Outcome | None]:
        """What comes of a claim, which goes on where the caller gives up."""
        claim = wanted.claim = Promise()

        def begin() -> None:
            ready = self.ready
            if wanted.is_left or (candidate := ready.choose(self.store.engine.clock.now())) is None:
                claim.resolve(None)
            else:
                run_in_background(self._claim(candidate)).add_done_callback(claim.follow)

        soon(self.store.engine.timers, begin)  # where Ctrl-C cannot strike
        self.store.engine.check()  # after it was closed, nothing begins
        return claim

    def abandon(self, wanted: Wanted) -> None:
        """The caller has given up: what is claimed for it is given back."""

        def give_back(claim: Promise[Claimed | Outcome | None]) -> None:
            if claim.exception() is None and isinstance(claimed := claim.result(), Claimed):
                self.give_back(claimed, delivered=False)  # it counts for nothing

        wanted.is_left = True
        if wanted.claim is not None:
            wanted.claim.add_done_callback(give_back)

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

    def _serve(self) -> Steps[None]:
        """Wake calls as long as calls wait."""
        while True:
            try:
                yield from self._waking()
            except Exception as error:
                with self._lock:
                    calls, self._calls[:] = list(self._calls), []
                for call in calls:
                    call.woken.fail(copy(error))
            finally:
                following, self._following = self._following, None
                if following is not None:
                    following.cancel()
            with self._lock:
                self._is_serving = bool(self._calls)
                if not self._is_serving:
                    return

    def _waking(self) -> Steps[None]:
        engine, clock = self.store.engine, self.store.engine.clock
        wake_at: float | None = None
        shown: Listing | None = None
        session = engine.sessions.latest
        following = self.store.backend.follow(self.store.layout.state, self._changed.notify)
        self._following = following
        while self._calls and session is engine.sessions.latest:
            self.chores.go_on()
            notified = self._changed.notified  # before the looks, so that later changes wake
            if following.view.ended is not None:
                engine.check()
                raise copy(following.view.ended)
            if (listing := following.view.state) is not None and listing is not shown:
                shown = listing
                self._learn((yield from self.store.state_in(listing)))
            if self._is_due and not self.is_following:
                yield from self.look()
            waiting = [call for call in list(self._calls) if not call.woken.done()]
            may_be_due, now = self.ready.may_be_due(time.time()), clock.now()
            count = self.ready.count + may_be_due
            seconds = _CHECK_S if self.is_following else _REREAD_S
            if not (count and waiting):
                wake_at = None
                if not count:
                    seconds = min(seconds, max(_SHORTEST_S, self.ready.next_due - time.time()))
            else:
                if wake_at is None:
                    is_first = self.chores.is_ours and not self._was_refused
                    wake_at = now if is_first else now + self._pause(count)
                if (seconds := wake_at - now) <= 0:
                    wake_at, seconds = None, _PATIENCE_S
                    yield from self._find_due()
                    for call in waiting[: self.ready.count]:
                        call.woken.resolve(None)
            yield within(engine.timers, notified, seconds)

    def _pause(self, count: int) -> float:
        """Seconds until a claim, where so many can be made at the same time."""
        shortest = _PAUSE_S if self.is_following else _PAUSE_AT_WORK_S
        pause = shortest + self.store.engine.timers.jitter(shortest)
        return pause * 2.0**self._refusals / count

    # What may be claimed

    @property
    def _is_due(self) -> bool:
        """Whether it is time to look, for the first of the calls that ask."""
        now = self.store.engine.clock.now()
        is_passed_over = self._made >= _CLAIMS and not self.ready.is_alone(now)
        return is_passed_over or now - self._look_at >= _REREAD_S

    def look(self) -> Steps[None]:
        """Read what may be claimed now."""
        began = self._look_at = self.store.engine.clock.now()
        self._made = 0
        state = yield from self.store.state()
        self.read_at = max(self.read_at, began)
        self._learn(state)
        yield from self._find_due()

    def _learn(self, state: State) -> None:
        if self._session is not self.store.engine.sessions.latest:
            self._session = self.store.engine.sessions.latest
            self.ready.forget()
        if state != self._state:
            self.chores.notify()
            self._state = state
        self.ready.learn(state, self.store.engine.clock.now())

    def _find_due(self) -> Steps[None]:
        """Find the items that were claimed or delayed and are due, if there may be more."""
        if not self.ready.may_be_due(time.time()):
            return
        found: Promise[None] = Promise()

        def begin() -> None:
            if self._finding is None or self._finding.done():  # or another call has begun it
                self._finding = run_in_background(find())
            self._finding.add_done_callback(found.follow)

        def find() -> Steps[None]:
            changes = self.ready.changes  # before the folders are read: it counts what comes later
            due, next_due = yield from self.store.kept(time.time(), enough=ENOUGH, changes=changes)
            self.ready.learn_due(changes, due, next_due, self.store.engine.clock.now())

        soon(self.store.engine.timers, begin)  # where Ctrl-C cannot strike
        self.store.engine.check()  # after it was closed, nothing begins
        yield found

    def look_again(self) -> None:
        """What is known is old: let the next claim look first."""
        self._look_at = self.read_at = -math.inf

    # Claims

    def _claim(self, candidate: Candidate) -> Steps[Claimed | Outcome | None]:
        """Claim the item, or bury it; where it is not to be had, what came of that."""
        outcome, claimed, worker = Outcome.UNCLEAR, None, None
        try:
            worker = yield from self.workers.get(candidate.record.token)
            outcome, claimed = yield from self._write(candidate, worker)
            return claimed or outcome
        except (Evicted, SessionLost):
            if worker is None:
                raise
            return outcome
        finally:
            self._note(outcome)
            self.ready.ended(candidate, outcome, self.store.engine.clock.now())
            if worker is not None and claimed is None:
                self.workers.put_back(worker)

    def _write(self, candidate: Candidate, worker: Worker) -> Steps[tuple[Outcome, Claimed | None]]:
        store, layout = self.store, self.store.layout
        me, one = worker.ticket.contenders[0], candidate.before.next
        claim = replace(
            candidate.record, at=time.time(), worker=me.key, order=me.order, token=me.token or 0
        )
        key, item = layout.claim(one), layout.item(one.id)
        operations = [*candidate.taking, *creating(key, claim.encode()), Read(item)]
        try:
            writing = Writing(store, operations, [me])
            outcome = yield from writing.steps()
            if outcome is Outcome.UNCLEAR:
                there = (yield from store.read(key)).values.get(key)
                is_mine = there is not None and Record.decode(key, there).is_of(me)
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
        else:
            self.look_again()

    def give_back(self, claimed: Claimed, *, delivered: bool = True) -> Promise[None]:
        """Let an item be claimed again, in the background; kept when that is certain.

        It has not failed, and was ``delivered`` or not. Fails where the claim is void, or ends
        otherwise: then others find that.
        """
        return run_in_background(self._give_back(claimed, delivered))

    def _give_back(self, claimed: Claimed, delivered: bool) -> Steps[None]:
        layout, worker, serial = self.store.layout, claimed.worker, claimed.serial
        record = claimed.claim.after(self.limits, delivered=delivered)
        operations = *ending(layout.claim(serial)), *record.keeping(layout, serial)
        try:
            guards = worker.ticket.contenders
            if (yield from self.store.write(operations, guards)) is Outcome.MADE:
                log_dead(layout.name, serial, record)
            else:
                worker.ticket.withdraw()  # it may be evicted: see `taken_away`
            self.put_back(worker)
        except BaseException:
            worker.ticket.withdraw()
            raise
        finally:
            self.look_again()

    def put_back(self, worker: Worker) -> None:
        """``worker`` has no item any more: keep it for the next one, for some seconds."""
        self.workers.put_back(worker)
        self.chores.go_on()
