"""How one client waits for items and claims them, for all of its calls.

A claim is one write, guarded by a worker's contender. It moves the item's entry from those that are
ready to the claims, and expects it as it was read. Its name never comes back, so an item has one
claim at a time.

A claim is void when its contender has left its queue. Departed contenders never return, and each
later write of that worker is guarded by its contender, so none of them comes through. So a client
that reads the claim, and then does not find the contender among the workers, may end it.

A client lists the first entries that are ready, and claims one after the other: those of items that
were claimed or delayed, and then new ones. It begins with the first one, as long as it is alone.
Once a claim was refused, it begins anywhere among those listed, so that consumers seldom meet, and
lists them again.

Each call claims for itself. Where the caller gives up during a claim, the claim is carried through
and the item given back, which is no failure. So only a session that ends leaves a claim behind.

While nothing is ready, the client follows the queue, once for all calls that wait. News reaches all
clients that follow. So each pauses at random before it lists what is ready, but for the one that
does the chores. The pause doubles with each refused claim.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Final

from coordlock.backend import Listing, Observation
from coordlock.backend.data import Read
from coordlock.errors import Evicted, SessionLost
from coordlock.runtime.clock import sleep, soon, within
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Condition, Promise
from coordlock.work.chores import Chores, log_dead
from coordlock.work.layout import OLD, Entry, creating, ending, later_than_now, milliseconds
from coordlock.work.records import Claim, Content, Ended, entry_in
from coordlock.work.store import Outcome, Store, Writing
from coordlock.work.workers import Worker, Workers

__all__ = ["Claimed", "Consumer", "Wanted"]

#: How many new entries a client lists, and how many old ones.
_LISTED: Final = 256
#: Seconds after which a client lists anew: other clients may have claimed what it has listed.
_RELIST_S: Final = 1.0
#: Seconds after its last refused claim after which a client counts as the only consumer.
_QUIET_S: Final = 1.0
#: Seconds for a call that was woken to begin its claim, before the next one is woken: its event
#: loop may be blocked.
_PATIENCE_S: Final = 1.0
#: Seconds after which a client that follows checks whether its session is another one.
_CHECK_S: Final = 5.0
#: The shortest wait for an item to become due.
_SHORTEST_S: Final = 0.02
#: The shortest pause after news, of a client that was neither refused nor successful lately:
#: meanwhile the client that does the chores claims the item. The longest is twice as long. A client
#: that finds items all the time pauses only after a refused claim. How often a pause may double,
#: and be halved.
_PAUSE_S: Final = 0.25
_PAUSE_AT_WORK_S: Final = 0.01
_DOUBLINGS: Final = 4
_HALVINGS: Final = 5


@dataclass(frozen=True)
class Claimed:
    """An item that a worker of this client has claimed."""

    entry: Entry
    content: Content
    worker: Worker


class Wanted:
    """A call that wants an item."""

    __slots__ = ("claim", "is_left", "once", "refused", "woken")

    def __init__(self, *, once: bool) -> None:
        self.once: Final = once
        #: Kept with the item, or with what came of the claim; with None where nothing is ready.
        self.claim: Promise[Claimed | Outcome | None] | None = None
        #: Whether its caller has given up.
        self.is_left = False
        #: How many claims were refused since nothing was ready; None while there is no answer.
        self.refused: int | None = None
        #: Kept when an item may be ready.
        self.woken: Promise[None] = Promise()


class Consumer:
    """Claims items of one queue for one client. Safe for threads."""

    def __init__(self, store: Store, max_failures: int, label: str | None) -> None:
        self.store: Final = store
        self.workers: Final = Workers(store, label)
        self.max_failures: Final = max_failures
        self.chores: Final = Chores(store, max_failures, self.workers, lambda: bool(self._calls))
        self._timers: Final = store.engine.timers
        self._lock: Final = threading.RLock()
        #: The calls that wait for news, or were woken by news, in the order in which they came.
        self._calls: Final[list[Wanted]] = []
        self._is_serving = False
        #: Notified when a call waits or has ended, and at news.
        self._changed: Final = Condition()
        self._following: Observation[Listing] | None = None
        #: What may be claimed, as last listed, in the order in which this client claims it.
        self._ready: deque[str] = deque()
        #: When the next entry is due, in milliseconds since 1970.
        self._next_due = math.inf
        #: The entries whose claims are under way, and all that were claimed since a look began.
        self._busy: Final[set[str]] = set()
        self._tried: set[str] = set()
        #: How many looks are under way.
        self._looks = 0
        #: When the last look began, in seconds of the client's clock, and after what news.
        self._look_at = -math.inf
        self._seen: object = None
        #: When the service last refused a claim, and how many listed entries the client had then.
        self._refused_at, self._left = -math.inf, 1
        #: How many more claims were refused than made lately.
        self._refusals = 0

    # Its calls

    @property
    def is_following(self) -> bool:
        """Whether it learns of all that becomes ready."""
        following = self._following
        return following is not None and following.view.stale_since is None

    def take(self, wanted: Wanted) -> Steps[Claimed | None]:
        """Claim an item as soon as one is ready; None where it looks once, and none is."""
        has_looked = False
        try:
            while True:
                self.chores.go_on()
                if self._needs_look or (wanted.once and not (self._ready or has_looked)):
                    has_looked = True
                    yield from self.look()
                if not self._ready:
                    wanted.refused = 0
                    if wanted.once:
                        return None
                    yield from self._news(wanted)
                    continue
                found = yield self._claiming(wanted)
                if isinstance(found, Claimed):
                    return found
                if found is Outcome.REFUSED:
                    wanted.refused = (wanted.refused or 0) + 1
                    yield sleep(self._timers, self._pause(_PAUSE_AT_WORK_S) / self._left)
        finally:
            with self._lock:
                was_waiting = wanted in self._calls
                if was_waiting:
                    self._calls.remove(wanted)
            if was_waiting:
                soon(self._timers, self._changed.notify)

    def _news(self, wanted: Wanted) -> Steps[None]:
        """Wait until an item may be ready."""
        with self._lock:
            wanted.woken = Promise()
            if wanted not in self._calls:
                self._calls.append(wanted)
        self.chores.go_on()  # they may have ended during a long look
        # Where Ctrl-C cannot strike, because other calls wait, too.
        soon(self._timers, self._begin)
        self.store.engine.check()  # after it was closed, nothing begins
        yield wanted.woken

    def _claiming(self, wanted: Wanted) -> Promise[Claimed | Outcome | None]:
        """What comes of a claim, which goes on where the caller gives up."""
        claim = wanted.claim = Promise()

        def begin() -> None:
            if wanted.is_left or (name := self._choose()) is None:
                claim.resolve(None)
            else:
                run_in_background(self._claim(name)).add_done_callback(claim.follow)

        soon(self._timers, begin)  # where Ctrl-C cannot strike
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
            soon(self._timers, action)

    def _serve(self) -> Steps[None]:
        """Wake calls as long as calls wait, and some seconds longer."""
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
        session = engine.sessions.latest
        mark = self.store.layout.mark
        self._following = following = engine.backend.follow_news(mark, self._on_news)
        while self.chores.is_wanted and session is engine.sessions.latest:
            notified = self._changed.notified  # before the looks, so that later changes wake
            if following.view.ended is not None:
                engine.check()
                raise copy(following.view.ended)
            waiting = [call for call in list(self._calls) if not call.woken.done()]
            seconds, now = _CHECK_S, clock.now()
            if not (waiting and (self._ready or self._may_be_ready)):
                wake_at = None
                if waiting:
                    seconds = min(seconds, max(_SHORTEST_S, self._next_due / 1000 - time.time()))
            else:
                if wake_at is None:
                    is_first = self.chores.is_ours and self._is_alone
                    shortest = _PAUSE_S if self.is_following else _RELIST_S
                    wake_at = now if is_first else now + self._pause(shortest)
                if (seconds := wake_at - now) <= 0:
                    wake_at, seconds = None, _PATIENCE_S
                    yield from self.look()
                    for call in waiting[: len(self._ready)]:
                        call.woken.resolve(None)
            yield within(self._timers, notified, seconds)

    def _on_news(self) -> None:
        if self._calls:
            self._changed.notify()

    def _pause(self, shortest: float) -> float:
        """Seconds until a look or a claim, at random."""
        return (shortest + self._timers.jitter(shortest)) * 2.0**self._refusals

    # What may be claimed

    @property
    def _is_alone(self) -> bool:
        """Whether no other consumer was faster lately."""
        return self.store.engine.clock.now() - self._refused_at >= _QUIET_S

    @property
    def _may_be_ready(self) -> bool:
        """Whether anything may have become ready since the last look."""
        following = self._following
        if following is None or following.view.stale_since is not None:
            return True
        return following.view.state is not self._seen or milliseconds() >= self._next_due

    @property
    def _needs_look(self) -> bool:
        if self._ready:
            return self.store.engine.clock.now() - self._look_at >= _RELIST_S
        return self._may_be_ready

    def look(self) -> Steps[None]:
        """List what may be claimed now."""
        following, layout = self._following, self.store.layout
        with self._lock:
            if not self._looks:
                self._tried = set(self._busy)
            self._looks += 1
            self._look_at = self.store.engine.clock.now()
        seen = None if following is None else following.view.state  # before the listing
        try:
            yield from self.store.check()
            found = yield from self.store.names(layout.ready, _LISTED, OLD)
        finally:
            with self._lock:
                self._looks -= 1
        with self._lock:
            new, middle = bisect(found, OLD), bisect(found, later_than_now())
            due = found[new:middle] + found[:new]
            free = [name for name in due if name not in self._tried]
            start = 0 if self._is_alone else int(self._timers.jitter(len(free)))
            self._ready = deque(free[start:] + free[:start])
            later = (entry_in(layout.ready + name).at for name in found[middle:])
            self._next_due = next(later, math.inf)
            # What this client has tried itself may be ready again, or hide others.
            self._seen = seen if len(free) == len(due) else None

    def look_again(self) -> None:
        """What is known is old: let the next claim look first."""
        self._ready, self._seen = deque(), None

    def note_given_back(self) -> None:
        """An item may be ready again: a client that is alone takes it next.

        Several would meet where each began anew.
        """
        if self._is_alone:
            self.look_again()

    # Claims

    def _choose(self) -> str | None:
        """What to claim next, which no other call of this client gets meanwhile."""
        with self._lock:
            if not self._ready:
                return None
            name = self._ready.popleft()
            self._busy.add(name)
            self._tried.add(name)
            return name

    def _claim(self, name: str) -> Steps[Claimed | Outcome | None]:
        """Claim the item; where it is not to be had, what came of that."""
        outcome, claimed, worker = Outcome.UNCLEAR, None, None
        try:
            entry = entry_in(self.store.layout.ready + name)
            worker = yield from self.workers.get(entry.token)
            outcome, claimed = yield from self._write(entry, worker)
            return claimed or outcome
        except (Evicted, SessionLost):
            if worker is None:
                raise
            return outcome
        finally:
            self._note(name, outcome)
            if worker is not None and claimed is None:
                self.workers.put_back(worker)

    def _write(self, entry: Entry, worker: Worker) -> Steps[tuple[Outcome, Claimed | None]]:
        store, layout, me = self.store, self.store.layout, worker.ticket.contenders[0]
        claim = entry._replace(is_old=1, at=milliseconds(), token=worker.token)
        key, item = f"{layout.claims}{claim}", layout.item(entry.number)
        operations = [
            *ending(f"{layout.ready}{entry}"),
            *creating(key, Claim.of(me).encode()),
            Read(item),
        ]
        try:
            writing = Writing(store, operations, [me])
            outcome = yield from writing.steps()
            if outcome is Outcome.UNCLEAR:  # the token makes the key this worker's
                is_there = key in (yield from store.read(key)).values
                outcome = Outcome.MADE if is_there else Outcome.REFUSED
            if outcome is not Outcome.MADE:
                return outcome, None
            found = writing.written or (yield from store.read(item))
            stored = found.values.get(item)
            if stored is None:  # an operator has removed it
                if (yield from store.write(ending(key), [me])) is not Outcome.MADE:
                    worker.ticket.withdraw()  # it may be evicted: see `taken_away`
            elif worker.ticket.lost is None:
                return outcome, Claimed(claim, Content.decode(item, stored), worker)
            return outcome, None
        except BaseException:
            worker.ticket.withdraw()  # so that the claim is void, if it was made
            raise

    def _note(self, name: str, outcome: Outcome) -> None:
        """The claim of the entry ``name`` has ended: learn from it for the next pause."""
        with self._lock:
            self._busy.discard(name)
            if outcome is Outcome.MADE:
                self._refusals = max(self._refusals - 1, -_HALVINGS)
                return
            if outcome is Outcome.REFUSED:
                self._refused_at, self._left = self.store.engine.clock.now(), len(self._ready) + 1
                self._refusals = min(max(self._refusals, 0) + 1, _DOUBLINGS)
            self.look_again()

    def give_back(self, claimed: Claimed, *, delivered: bool = True) -> Promise[None]:
        """Let an item be claimed again, in the background; kept when that is certain.

        It has not failed, and was ``delivered`` or not. Fails where the claim is void, or ends
        otherwise: then others find that.
        """
        return run_in_background(self._give_back(claimed, delivered))

    def _give_back(self, claimed: Claimed, delivered: bool) -> Steps[None]:
        layout, worker = self.store.layout, claimed.worker
        ended = Ended.of(claimed.entry, self.max_failures, delivered=delivered)
        operations = *ending(f"{layout.claims}{claimed.entry}"), *ended.keeping(layout)
        try:
            guards = worker.ticket.contenders
            if (yield from self.store.write(operations, guards)) is Outcome.MADE:
                log_dead(layout.name, ended)
            else:
                worker.ticket.withdraw()  # it may be evicted: see `taken_away`
            self.workers.put_back(worker)
        except BaseException:
            worker.ticket.withdraw()
            raise
        finally:
            self.note_given_back()
