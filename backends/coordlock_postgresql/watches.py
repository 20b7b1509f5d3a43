"""Departures: what a client watches, how it learns that it has left, and which sessions are dead.

A notification is sent after the departure was committed, and reaches those who were in the queue by
then. What depends on none of them coming:

* A client looks at a contender once after it began to watch it, which is after its own commit.
* It looks again after each gap, and every few seconds: one statement for all that it watches.
* A session whose beat has not changed for its ttl, on this client's own clock, is dead: this client
  ends it. The clock of the server counts for nothing here, for it may be set.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final

from coordlock.backend import Departure
from coordlock.backend.watch_table import Watched, WatchTable
from coordlock.errors import ClientClosed
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Timer, Timers
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise

__all__ = ["Watches"]

log = Log("coordlock")

#: Seconds between the first two looks, and later ones.
FIRST_LOOK_S: Final = 1.0
LOOK_S: Final = 5.0
#: The same where no notification arrives: doubled from the first to the last.
POLL_S: Final = 0.02
MAX_POLL_S: Final = 1.0
#: Seconds for which a client checks the sessions that it saw in a queue and does not wait for.
ATTENTION_S: Final = 25.0
#: How many departures are remembered that nothing watched yet.
MAX_REMEMBERED: Final = 4096

#: A contender with its beat and ttl: see the function ``look``.
Seen = Sequence[Any]


class _Watched(Watched):
    """A contender that is watched.

    Attributes:
        is_wanted: whether to look at it soon.
        is_reported: whether notifications report its departure from now on.
    """

    __slots__ = ("contender", "is_reported", "is_wanted")

    def __init__(self, contender: Contender) -> None:
        super().__init__((contender.id, contender.order))
        self.contender: Final = contender
        self.is_reported = self.is_wanted = False


class Watches:
    """All watches of a client. Safe for threads; callbacks are called without the lock.

    Args:
        ask: looks at contenders.
        reap: ends a session that has a beat.
        is_own: whether a session is the client's own.
        lock: a reentrant lock.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[Contender]], Promise[Sequence[Seen]]],
        reap: Callable[[str, int], Promise[None]],
        is_own: Callable[[str], bool],
        timers: Timers,
        lock: AbstractContextManager[Any],
    ) -> None:
        self._ask: Final = ask
        self._reap: Final = reap
        self._is_own: Final = is_own
        self._timers: Final = timers
        self._lock: Final = lock
        self._table: Final[WatchTable[_Watched]] = WatchTable(lock)
        #: What has left, the latest last, and the state's revision by then.
        self._departed: Final[dict[tuple[str, int], int]] = {}
        #: Of each session that was seen in a queue: one of its contenders, and until when to look.
        self._attended: Final[dict[str, tuple[Contender, float]]] = {}
        #: Of the sessions that are looked at: the beat, and when it was seen first.
        self._beats: dict[str, tuple[int, float]] = {}
        #: All that left after this revision was reported, and is remembered; None while nothing is.
        self._live_since: int | None = None
        self._is_looking = self._is_closed = False
        self._delay = POLL_S
        self._timer: Timer | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is watched."""
        return not self._table.watched

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        waiters: Sequence[Contender],
        *,
        changes: bool,
    ) -> Callable[[], None]:
        """See `Backend.watch`."""
        version = contender.version if changes else 0
        with self._lock:
            if self._is_closed:
                return lambda: None
            watched, cancel = self._table.add(_Watched(contender), on_departure, waiters, version)
            has_left = watched.key in self._departed
            is_own = self._is_own(contender.session)
            # One's own is there since its commit, and nothing of it can be missed.
            is_live = self._live_since is not None and revision >= self._live_since
            watched.is_reported |= is_own and is_live
            watched.is_wanted |= changes or not watched.is_reported
            self._delay = POLL_S
        if has_left:
            self._table.report(watched)
        elif watched.is_wanted:
            self._look(is_due=False)
        return cancel

    def attend(self, contenders: Sequence[Contender]) -> None:
        """Check for a while whether the sessions of ``contenders`` die, without a watch."""
        until = self._timers.clock.now() + ATTENTION_S
        # One's own would never be known: looks for it would follow each other without a pause.
        others = [each for each in contenders if not self._is_own(each.session)]
        with self._lock:
            seen = {each.session: (each, until) for each in others}
            is_new = not seen.keys() <= self._beats.keys()
            self._attended.update(seen)
        if is_new:
            self._look(is_due=False)

    def on_left(self, id: str, order: int, revision: int) -> None:
        """A contender has left, before that ``revision``."""
        with self._lock:
            self._departed[id, order] = revision
            if len(self._departed) > MAX_REMEMBERED:
                forgotten = self._departed.pop(next(iter(self._departed)))
                if self._live_since is not None:
                    self._live_since = max(self._live_since, forgotten)
            watched = self._table.watched.get((id, order))
        if watched is not None:
            self._table.report(watched)

    def on_value(self, id: str, order: int, version: int) -> None:
        """A contender has published its value of that ``version``."""
        if (watched := self._table.watched.get((id, order))) is not None:
            self._table.report_value(watched, version)

    def on_live(self, revision: int) -> None:
        """Notifications come since that ``revision``: what left before was not reported."""
        self._live_since = revision
        self.look()

    def on_silence(self) -> None:
        """No notification comes any more."""
        with self._lock:
            self._live_since, self._delay = None, POLL_S
            for watched in self._table.watched.values():
                watched.is_reported = False
        self.look()

    def reset(self) -> None:
        """Drop all watches: their session has ended."""
        with self._lock:
            self._table.clear()
            self._departed.clear()

    def close(self) -> None:
        """Report nothing any more."""
        with self._lock:
            self._is_closed = True
            self.reset()
            if self._timer is not None:
                self._timer.cancel()

    def look(self) -> None:
        """See which of all that is watched are there."""
        self._look(is_due=True)

    def _look(self, *, is_due: bool) -> None:
        """The same, of those alone that are wanted unless it ``is_due``. One look at a time."""
        now = self._timers.clock.now()
        with self._lock:
            for session in [each for each, (_, until) in self._attended.items() if until < now]:
                del self._attended[session]
            if is_due:
                for watched in self._table.watched.values():
                    watched.is_wanted = True
            wanted = [each for each in self._table.watched.values() if each.is_wanted]
            contenders = [each.contender for each in wanted] + [
                contender
                for session, (contender, _) in self._attended.items()
                if is_due or session not in self._beats
            ]
            if self._is_looking or self._is_closed or not contenders:
                return
            self._is_looking = True
            for watched in wanted:
                watched.is_wanted = False
        answer = self._ask(contenders)
        answer.add_done_callback(partial(self._looked, wanted, contenders))

    def _looked(
        self,
        watched: Sequence[_Watched],
        contenders: Sequence[Contender],
        answer: Promise[Sequence[Seen]],
    ) -> None:
        now = self._timers.clock.now()
        next_at = now + self._period()
        dead: set[tuple[str, int]] = set()
        if answer.exception() is None:
            there: dict[Hashable, list[Any]] = {
                (id, token): rest for id, token, *rest in answer.result()
            }
            with self._lock:
                is_live = self._live_since is not None
                for each in contenders:
                    if (each.id, each.order) not in there:
                        self._attended.pop(each.session, None)
                for _, session, beat, ttl in there.values():
                    if not self._is_own(session):
                        known, since = self._beats.get(session, (beat, now))
                        since = since if known == beat else now
                        self._beats[session] = beat, since
                        if beat < 0 or now >= since + ttl:
                            dead.add((session, beat))
                        next_at = min(next_at, max(since + ttl, now + POLL_S), now + ttl / 3)
                for each_watched in watched:
                    each_watched.is_reported |= is_live and each_watched.key in there
            for each_watched in watched:
                if (found := there.get(each_watched.key)) is None:
                    self._table.report(each_watched)
                else:
                    self._table.report_value(each_watched, found[0])
        for session, beat in dead:
            # An ended one has contenders that transactions keep.
            delay = MAX_POLL_S if beat < 0 else POLL_S
            self._reap(session, beat).add_done_callback(partial(self._look_after, delay))
        has_failed = answer.exception() is not None
        with self._lock:
            self._is_looking = False
            self._expect(min(next_at, now + FIRST_LOOK_S) if has_failed else next_at)
        if not has_failed:  # or it would be repeated at once for as long as it fails
            self._look(is_due=False)

    def _period(self) -> float:
        """Seconds until the next look; longer each time."""
        if self._live_since is None:
            self._delay = min(2 * self._delay, MAX_POLL_S)
            return self._delay
        is_first = self._delay < FIRST_LOOK_S
        self._delay = FIRST_LOOK_S
        return FIRST_LOOK_S if is_first else LOOK_S

    def _look_after(self, delay: float, _: Promise[None]) -> None:
        with self._lock:
            self._expect(self._timers.clock.now() + delay)

    def _expect(self, when: float) -> None:
        timer = self._timer
        if timer is not None and timer.action is not None and timer.when <= when:
            return
        if timer is not None:
            timer.cancel()
        if self.is_empty and not self._attended:
            self._beats.clear()
        elif not self._is_closed:
            with suppress(ClientClosed):
                self._timer = self._timers.call_at(when, self.look)
