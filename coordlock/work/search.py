"""One call that takes an item: at once where one is ready, else in the line of the consumers.

With a backlog no consumer waits for another. At the empty queue consumers stand in line, so that
one item wakes one of them. The first in line follows the queue's state. So does the second. It
takes an item that is still there after a quarter of a second, and removes the first from the line,
which is stopped, or too slow for those behind it. Each two seconds it also does what the first does
for all: it makes items of ended workers, and those that are due, ready.

Of the calls of one event loop, or of a client's threads, one stands in line. Else the first two
might both be of an event loop that is blocked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from typing import Final

from coordlock.errors import AcquireTimeout, Evicted
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Permit
from coordlock.model.contender import Contender
from coordlock.runtime.clock import soon, within
from coordlock.runtime.deadline import Deadline
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Condition, Promise
from coordlock.work.consumer import Claimed, Consumer
from coordlock.work.janitor import Limits
from coordlock.work.store import Outcome

__all__ = ["Search"]

#: How many in line follow the state, and for how many seconds the second lets the first go on.
_FOLLOWERS: Final = Permit(2)
_PATIENCE: Final = 0.25
#: For how many seconds the second leaves to the first what that does for all.
_CHORES: Final = 2.0
#: The shortest wait, where a look that is due is under way.
_SHORTEST: Final = 0.02
#: The longest wait without a look at the clock of the day, which may be set meanwhile.
_LONGEST: Final = 30.0


class Search:
    """One call that takes an item."""

    def __init__(self, consumer: Consumer, limits: Limits, label: str | None) -> None:
        self._consumer: Final = consumer
        self._store: Final = consumer.store
        self._limits: Final = limits
        self._label: Final = label
        #: Whether nothing was ready when it looked last.
        self.saw_nothing = False
        #: How many of its claims were refused since nothing was ready.
        self.refused = 0
        #: The last claim that was begun.
        self._claiming: Promise[Claimed | Outcome | None] | None = None
        self._turns: Final = consumer.turns
        #: Kept when this call may stand in line.
        self._turn: Final[Promise[None]] = Promise()

    def at_once(self) -> Steps[Claimed | None]:
        """Claim an item that is ready; None where there is none."""
        consumer, has_looked = self._consumer, False
        if consumer.is_due:
            yield from consumer.look()
            has_looked = True
        is_fresh = has_looked
        while True:
            consumer.janitor.look_if_due(self._limits)
            if not consumer.ready.has_many and (
                yield from consumer.janitor.make_ready(consumer.bell)
            ):
                yield from consumer.look()
            claimed = yield from self._claimed(is_fresh)
            if isinstance(claimed, Claimed):
                self.saw_nothing = False
                return claimed
            if claimed is Outcome.REFUSED:
                has_looked = self.saw_nothing = False
                self.refused += 1
                yield from consumer.look()  # or the next claim is likely refused, too
                is_fresh = True
            elif (other := consumer.ready.others()) is not None:
                yield other
                has_looked = False  # that claim may have left its lane unknown
            elif has_looked:
                self.saw_nothing, self.refused = True, 0
                return None
            else:
                yield from consumer.look()
                has_looked = is_fresh = True

    def _claimed(self, is_fresh: bool) -> Steps[Claimed | Outcome | None]:
        """What comes of a claim; None where no candidate is known."""
        claiming: Promise[Claimed | Outcome | None] = Promise()
        self._claiming = claiming

        def begin() -> None:
            claim = self._consumer.claim(self._label, self._limits, is_fresh=is_fresh)
            run_in_background(claim).add_done_callback(claiming.follow)

        # Where Ctrl-C cannot strike, or a candidate might stay chosen that nobody claims.
        soon(self._store.engine.timers, begin)
        self._store.engine.check()  # after it was closed, nothing begins
        claimed: Claimed | Outcome | None = yield claiming
        return claimed

    def abandon(self) -> None:
        """The caller has given up: take back what was claimed, or will be. Idempotent."""
        self._turns.leave(self._turn)
        claiming, self._claiming = self._claiming, None
        if claiming is not None:
            claiming.add_done_callback(self._consumer.take_back)

    def in_line(self, deadline: Deadline | None) -> Steps[Claimed | None]:
        """Claim the first item that becomes ready; None where none has before the ``deadline``."""
        consumer, timers = self._consumer, self._store.engine.timers
        self._turns.join(self._turn)
        try:
            yield within(timers, self._turn, _before(deadline))
            if consumer.ready.has_any or not self._turn.done():
                claimed = yield from self.at_once()
                if claimed is not None or not self._turn.done():
                    return claimed
            return (yield from self._standing(deadline))
        finally:
            self._turns.leave(self._turn)

    def _standing(self, deadline: Deadline | None) -> Steps[Claimed | None]:
        engine, queue = self._store.engine, {self._store.layout.line: _FOLLOWERS}
        while True:
            place: Ticket | None = None
            try:
                place = yield from acquisition(
                    *(engine, queue, _before(deadline)),
                    label=self._label,
                    cancellations=() if deadline is None else deadline.cancellations,
                    kind="work queue",
                    name=self._store.layout.name,
                )
                yield deadline
                return (yield from self._following(place))
            except AcquireTimeout:
                yield deadline
                return (yield from self.at_once())
            except Evicted:  # one behind has passed over this one, perhaps before it saw its turn
                pass
            finally:
                if place is not None:
                    place.withdraw()  # the next in line waits for it, this caller need not

    def _following(self, place: Ticket) -> Steps[Claimed]:
        """Claim the first item that becomes ready, as one of the first two in line."""
        consumer, store, timers = self._consumer, self._store, self._store.engine.timers
        changed = Condition()
        ahead, forget = yield from self._ahead_of(place, changed)
        following = store.backend.follow(store.layout.state, changed.notify)
        #: Since when the first in line leaves ready items alone, in seconds of the client's clock.
        idle_since: float | None = None
        #: From when on the second in line does what the first should have done.
        chores_at = timers.clock.now() + _CHORES
        try:
            while True:
                notified = changed.notified  # before the looks, so that later changes wake
                if following.view.ended is not None:
                    raise copy(following.view.ended)
                if following.view.state is not None:
                    state = yield from store.state_in(following.view.state)
                    yield from consumer.learn(state)
                    self.saw_nothing = not consumer.ready.has_any
                now, patience = timers.clock.now(), 0.0
                if consumer.ready.has_any and ahead:
                    idle_since = now if idle_since is None else idle_since
                    patience = idle_since + _PATIENCE - now
                if consumer.ready.has_any and patience <= 0:
                    claimed = yield from self.at_once()
                    if claimed is not None:
                        for other in ahead:  # where this fails, the next one does it
                            store.backend.evict(other)
                        return claimed
                    idle_since = None
                seconds = patience if patience > 0 else _LONGEST
                if not ahead or now >= chores_at:
                    chores_at = now + _CHORES
                    consumer.janitor.look_if_due(self._limits)
                    if (yield from consumer.janitor.make_ready(consumer.bell)):
                        continue  # the bell was rung
                chores = consumer.janitor.seconds(consumer.bell)
                seconds = min(seconds, max(chores, chores_at - now) if ahead else chores)
                alarm = timers.call_at(now + max(seconds, _SHORTEST), changed.notify)
                try:
                    yield place.unless_lost(notified)
                finally:
                    alarm.cancel()
        finally:
            following.cancel()
            forget()

    def _ahead_of(
        self, place: Ticket, changed: Condition
    ) -> Steps[tuple[list[Contender], Callable[[], None]]]:
        """The first in line, till it leaves, where ``place`` is the second; and what forgets it."""
        backend, me = self._store.backend, place.contenders[0]
        ask = lambda: backend.snapshot(self._store.layout.line, me)  # noqa: E731
        snapshot = yield from retried(ask, self._store.engine.timers)
        ahead = list(snapshot.before(me)[-1:])

        def departed(_: object) -> None:
            ahead.clear()
            changed.notify()

        if not ahead:
            return ahead, lambda: None
        return ahead, backend.watch(ahead[0], snapshot.revision, departed)


def _before(deadline: Deadline | None) -> float | None:
    """For how many seconds to wait: the rest of the time is for one more look. None: for ever."""
    if deadline is None or (left := deadline.left()) == math.inf:
        return None
    return left - min(_PATIENCE, left / 4)
