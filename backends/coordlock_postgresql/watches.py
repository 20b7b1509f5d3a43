"""Departures: what a client watches, how it learns that it has left, and which sessions are dead.

A notification is sent after the departure was committed, and reaches those who were in the queue by
then. What depends on none of them coming:

* A client looks at a contender once after it began to watch it, which is after its own commit.
* It looks again after each gap, and every few seconds: one statement for all that it watches.
* A session whose beat has not changed for its ttl, on this client's own clock, is dead: the next
  look ends it. The clock of the server counts for nothing here, for it may be set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final

from coordlock.backend import Departure
from coordlock.backend.watch_table import Watched, WatchTable
from coordlock.errors import ClientClosed
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Timer, Timers
from coordlock.runtime.promise import Promise

__all__ = ["MAX_POLL_S", "Seen", "Watches"]

#: Seconds between two looks while notifications come: doubled from the first to the last.
FIRST_LOOK_S: Final = 1.0
MAX_LOOK_S: Final = 5.0
#: The same where none arrives.
FIRST_POLL_S: Final = 0.02
MAX_POLL_S: Final = 1.0
#: Seconds for which a client checks the sessions that it saw in a queue and does not wait for.
ATTENTION_S: Final = 25.0

#: An id and a token.
_Key = tuple[str, int]
#: A contender with its beat and ttl: see the function ``look``.
Seen = Sequence[Any]


class _Watched(Watched):
    """A contender that is watched."""

    __slots__ = ("contender",)

    def __init__(self, contender: Contender) -> None:
        super().__init__(_key(contender))
        self.contender: Final = contender


class Watches:
    """All watches of a client. Safe for threads; callbacks are called without the lock.

    Args:
        ask: reads contenders, and ends each given session whose beat has not changed.
        is_own: whether a session is the client's own.
        is_followed: whether to look though nothing is watched.
        lock: a reentrant lock.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[Contender], Mapping[str, int]], Promise[Sequence[Seen]]],
        is_own: Callable[[str], bool],
        is_followed: Callable[[], bool],
        timers: Timers,
        lock: AbstractContextManager[Any],
    ) -> None:
        self._ask: Final = ask
        self._is_own: Final = is_own
        self._is_followed: Final = is_followed
        self._timers: Final = timers
        self._lock: Final = lock
        self._table: Final[WatchTable[_Watched]] = WatchTable(lock)
        #: What the next look is about.
        self._wanted: dict[_Key, Contender] = {}
        #: Of each session that was seen in a queue: one of its contenders, and until when to look.
        self._attended: dict[str, tuple[Contender, float]] = {}
        #: Of the sessions that are looked at: the beat, when it was seen first, and the ttl.
        self._beats: dict[str, tuple[int, float, float]] = {}
        self._is_live = self._is_due = self._is_looking = self._is_closed = False
        self._delay = 0.0
        self._timer: Timer | None = None

    def watch(
        self,
        contender: Contender,
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
            _, cancel = self._table.add(_Watched(contender), on_departure, waiters, version)
            self._delay = 0.0
            if not (waiters or changes) and self._is_own(contender.session):
                # One's own grant, which is there since its commit: a later look will do.
                self._look_again(self._timers.clock.now() + FIRST_LOOK_S)
                return cancel
        self._look([contender])
        return cancel

    def attend(self, contenders: Sequence[Contender]) -> None:
        """Check for a while whether the sessions of ``contenders`` die, without a watch."""
        until = self._timers.clock.now() + ATTENTION_S
        with self._lock:
            others = [each for each in contenders if not self._is_own(each.session)]
            seen = {each.session: (each, until) for each in others}
            new = [seen[session][0] for session in seen.keys() - self._beats.keys()]
            self._attended.update(seen)
        self._look(new)

    def on_left(self, id: str, token: int) -> None:
        """A contender has left."""
        if (watched := self._table.watched.get((id, token))) is not None:
            self._table.report(watched)

    def on_value(self, id: str, token: int, version: int) -> None:
        """A contender has published its value of that ``version``."""
        if (watched := self._table.watched.get((id, token))) is not None:
            self._table.report_value(watched, version)

    def set_live(self, is_live: bool) -> None:
        """Notifications come from now on, or come no more."""
        with self._lock:
            self._is_live, self._delay = is_live, 0.0
        self.look()

    def reset(self) -> None:
        """Drop all watches: their session has ended."""
        with self._lock:
            self._table.clear()

    def close(self) -> None:
        """Report nothing any more."""
        with self._lock:
            self._is_closed = True
            self.reset()
            if self._timer is not None:
                self._timer.cancel()

    def look(self) -> None:
        """See which of all that is watched are there."""
        now = self._timers.clock.now()
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._attended = {
                session: (contender, until)
                for session, (contender, until) in self._attended.items()
                if until >= now
            }
            due = [watched.contender for watched in self._table.watched.values()]
            due += [contender for contender, _ in self._attended.values()]
            sessions = {contender.session for contender in due}
            self._beats = {each: beat for each, beat in self._beats.items() if each in sessions}
            self._is_due = self._is_followed()
        self._look(due)

    def _look(self, contenders: Sequence[Contender]) -> None:
        """See whether ``contenders`` are there. One look at a time."""
        now = self._timers.clock.now()
        with self._lock:
            self._wanted |= {_key(each): each for each in contenders}
            if self._is_looking or self._is_closed or not (self._wanted or self._is_due):
                return
            self._is_looking, self._is_due = True, False
            wanted, self._wanted = self._wanted, {}
            dead = {
                session: beat
                for session, (beat, since, ttl) in self._beats.items()
                if now >= since + ttl
            }
        answer = self._ask(list(wanted.values()), dead)
        answer.add_done_callback(partial(self._looked, wanted))

    def _looked(self, wanted: Mapping[_Key, Contender], answer: Promise[Sequence[Seen]]) -> None:
        now = self._timers.clock.now()
        has_failed = answer.exception() is not None
        seen = () if has_failed else answer.result()
        there: dict[_Key, list[Any]] = {(id, token): rest for id, token, *rest in seen}
        with self._lock:
            self._is_looking = False
            pause = self._pause()
            for _, session, beat, ttl in there.values():
                known = self._beats.get(session)
                if not self._is_own(session) and (known is None or known[0] != beat):
                    self._beats[session] = beat, now, ttl
                # An ended session has contenders that transactions keep.
                pause = min(pause, ttl / 3 if beat >= 0 else MAX_POLL_S)
            self._look_again(now + pause)
        if has_failed:  # another one at once would fail, too, and the next one is about all
            return
        for key, contender in wanted.items():
            watched = self._table.watched.get(key)
            if key in there:
                if watched is not None:
                    self._table.report_value(watched, there[key][0])
                continue
            with self._lock:
                self._attended.pop(contender.session, None)
            if watched is not None:
                self._table.report(watched)
        self._look([])

    def _pause(self) -> float:
        """Seconds until the next look; longer each time."""
        first, longest = FIRST_POLL_S, MAX_POLL_S
        if self._is_live:
            first, longest = FIRST_LOOK_S, MAX_LOOK_S
        self._delay = min(max(2 * self._delay, first), longest)
        return self._delay

    def _look_again(self, when: float) -> None:
        if self._timer is None or when < self._timer.when:
            if self._timer is not None:
                self._timer.cancel()
            with suppress(ClientClosed):
                self._timer = self._timers.call_at(when, self.look)


def _key(contender: Contender) -> _Key:
    return contender.id, contender.order
