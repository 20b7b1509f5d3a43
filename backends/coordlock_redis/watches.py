"""Departures: what the client watches, and how it learns that it has left.

Redis reports a departure to the clients that watch the contender, and to that whose it was.
Messages come in the order in which things happened. What depends on none of them coming:

* After each gap in the messages, the client asks for all that it watches.
* Of departures that nothing watched yet, the client remembers the latest. Where it has forgotten
  one, it asks for each contender that was read before that departure.
* A contender whose session has expired is removed by the next script that looks. So the client
  looks when the session of one that it watches should have expired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final

from coordlock.backend import Departure
from coordlock.backend.watch_table import Watched, WatchTable
from coordlock.errors import ClientClosed, SessionLost
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Timer, Timers
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_redis.contenders import names
from coordlock_redis.requests import MICROSECONDS, Request, Word

__all__ = ["Watches"]

log = Log("coordlock")

#: How many contenders one script looks for.
LOOK_BATCH: Final = 500
#: How many departures are remembered that nothing watched yet.
MAX_REMEMBERED: Final = 4096
#: Seconds before another look after one that got no answer.
RELOOK_DELAY_S: Final = 0.5
#: Seconds added to the time that a session has left.
EXPIRY_MARGIN_S: Final = 0.005

#: An id and an order: a contender of which a part of its set was gone comes back with its id.
_Key = tuple[str, int]


class _Watched(Watched):
    """A contender that is watched.

    Attributes:
        expires_at: when to look because its session should have expired; None if unknown.
        is_reported: whether a message reports its departure, unless one did already.
    """

    __slots__ = ("contender", "expires_at", "is_reported")

    def __init__(self, contender: Contender) -> None:
        super().__init__((contender.id, contender.order))
        self.contender: Final = contender
        self.expires_at: float | None = None
        self.is_reported = False


class Watches:
    """All watches of a client. Safe for threads; callbacks are called without the lock.

    Args:
        ask: sends a request, behind the session in its arguments.
        is_own: whether a session is the client's own.
        lock: a reentrant lock.
    """

    def __init__(
        self,
        ask: Callable[[Request[Any]], Promise[Any]],
        is_own: Callable[[str], bool],
        timers: Timers,
        lock: AbstractContextManager[Any],
    ) -> None:
        self._ask: Final = ask
        self._is_own: Final = is_own
        self._timers: Final = timers
        self._lock: Final = lock
        self._table: Final[WatchTable[_Watched]] = WatchTable(lock)
        #: What has left, the latest last: what that proves, and its revision at the latest.
        self._departures: Final[dict[_Key, tuple[Departure, int]]] = {}
        #: What a script has put under watch already, and when its session expires.
        self._arranged: Final[dict[_Key, float]] = {}
        #: All departures after this revision are reported; None while that is unknown.
        self._since: int | None = None
        #: Those after this revision that came are remembered.
        self._forgotten = 0
        #: The time since the last gap in the messages; None during one.
        self._period: object | None = None
        self._timer: Timer | None = None
        self._is_closed = False

    def opened(self, revision: int) -> None:
        """A session has begun at ``revision``, while messages came."""
        with self._lock:
            if self._period is not None:
                self._since = revision

    def arranged(self, contender: Contender, left: int) -> None:
        """A script has put ``contender`` under watch, whose session has ``left`` microseconds."""
        with self._lock:
            self._arranged[contender.id, contender.order] = self._expiry(left)
            if len(self._arranged) > MAX_REMEMBERED:
                del self._arranged[next(iter(self._arranged))]

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
            departure, _ = self._departures.get((contender.id, contender.order), (None, 0))
            expires_at = self._arranged.pop((contender.id, contender.order), None)
            is_known = self._since is not None and revision >= max(self._since, self._forgotten)
            is_arranged = expires_at is not None or self._is_own(contender.session)
            watched.is_reported |= is_known and is_arranged
            needs_look = changes or not watched.is_reported
            if expires_at is not None:
                self._expect(watched, expires_at)
        if departure is not None:
            self._report(watched, departure)
        elif needs_look and self._period is not None:  # else the end of the gap looks
            self._look([watched])
        return cancel

    def reset(self) -> None:
        """Drop all watches: their session has ended."""
        with self._lock:
            self._table.clear()
            self._arranged.clear()  # Redis may drop the inbox of a client without a session
            self._since = None

    def close(self) -> None:
        """Report nothing any more."""
        with self._lock:
            self._is_closed = True
            self.reset()
            if self._timer is not None:
                self._timer.cancel()

    # What the subscription reports

    def on_left(self, id: str, order: int, revision: int, *, was_first: bool) -> None:
        """A message says that a contender has left, at that ``revision``."""
        departure = Departure.FIRST if was_first else Departure.IN_ORDER
        with self._lock:
            self._departures[id, order] = departure, revision
            if len(self._departures) > MAX_REMEMBERED:
                _, forgotten = self._departures.pop(next(iter(self._departures)))
                self._forgotten = max(self._forgotten, forgotten)
            watched = self._table.watched.get((id, order))
        if watched is not None:
            self._report(watched, departure)

    def on_value(self, id: str, order: int, version: int) -> None:
        """A contender has published its value of that ``version``."""
        with self._lock:
            watched = self._table.watched.get((id, order))
        if watched is not None:
            self._table.report_value(watched, version)

    def on_subscribed(self) -> None:
        """There was a gap: look for all that is watched."""
        self.on_gap()
        with self._lock:
            self._period = object()
            watched = list(self._table.watched.values())
        self._look(watched)

    def on_gap(self) -> None:
        """What leaves now is not reported."""
        with self._lock:
            self._since = self._period = None
            self._arranged.clear()
            for watched in self._table.watched.values():
                watched.is_reported = False

    def _report(self, watched: _Watched, departure: Departure) -> None:
        self._table.report(watched, partial(self._proof, departure))

    def _proof(self, departure: Departure, waiters: Sequence[Contender]) -> Departure:
        """What a ``departure`` that a message has reported proves to ``waiters``.

        Had one of them left before, a message would have said so before.
        """
        with self._lock:
            own = [self._table.watched.get((one.id, one.order)) for one in waiters]
        is_proof = all(watched is not None and watched.is_reported for watched in own)
        return departure if is_proof else Departure.UNORDERED

    # Looking

    def _look(self, watched: Sequence[_Watched]) -> None:
        """Ask for contenders, and report the departures of those that are not there."""
        period = self._period
        for start in range(0, len(watched), LOOK_BATCH):
            batch = watched[start : start + LOOK_BATCH]
            arguments: list[Word] = []
            for each in batch:
                arguments += names(each.contender)
            request = Request("watch", arguments, partial(self._seen, batch, period))
            self._ask(request).add_done_callback(partial(self._repeat, batch))

    def _repeat(self, batch: Sequence[_Watched], done: Promise[None]) -> None:
        error = done.exception()
        if error is None or isinstance(error, SessionLost) or self._is_closed:
            return
        log.debug("redis: another look follows: %s", error)

        def again() -> None:
            self._look([watched for watched in batch if watched.watches])

        with suppress(ClientClosed):
            self._timers.call_at(self._timers.clock.now() + RELOOK_DELAY_S, again)

    def _seen(self, batch: Sequence[_Watched], period: object | None, answer: list[Any]) -> None:
        _, revision, *found = answer
        seen = list(zip(batch, found[::2], found[1::2], strict=True))
        with self._lock:
            is_reported = period is not None and period is self._period
            if is_reported and self._since is None:
                self._since = revision
            for watched, version, left in seen:
                watched.is_reported |= is_reported and version > 0
                if version and not self._is_own(watched.contender.session):
                    self._expect(watched, self._expiry(left))
        for watched, version, _ in seen:
            if version:
                self._table.report_value(watched, version)
            else:
                self._table.report(watched)

    def _expiry(self, left: int) -> float:
        return self._timers.clock.now() + left / MICROSECONDS + EXPIRY_MARGIN_S

    def _expect(self, watched: _Watched, expires_at: float) -> None:
        """Look for it at ``expires_at``, when its session should have expired."""
        watched.expires_at = expires_at
        timer = self._timer
        if self._is_closed or (timer is not None and timer.when <= expires_at):
            return
        with suppress(ClientClosed):
            self._timer = self._timers.call_at(expires_at, self._expired)
        if timer is not None:
            timer.cancel()

    def _expired(self) -> None:
        now = self._timers.clock.now()
        late: list[_Watched] = []
        with self._lock:
            self._timer = None
            for watched in self._table.watched.values():
                if watched.expires_at is not None and watched.expires_at > now:
                    self._expect(watched, watched.expires_at)
                elif watched.expires_at is not None:
                    watched.expires_at = None
                    late.append(watched)
        self._look(late)
