"""Departures: what the client watches, and how it learns that it has left.

Redis tells a departure to the inboxes of those who watch the contender and of the client whose it
was. Messages come in the order in which things happened. What depends on none of them coming:

* After each gap in the news, the client asks for all that it watches.
* Of departures that nobody watched yet, the client remembers the latest. Where it has forgotten
  one, it asks for each contender that was read before that departure.
* A contender whose session has expired is removed by the next script that looks. So the client
  looks when the session of one that it watches should have expired.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from coordlock.backend import Departure
from coordlock.errors import ClientClosed, SessionLost
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Timer, Timers
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_redis.contenders import names
from coordlock_redis.requests import MICROSECONDS, Argument, Request

__all__ = ["Watches"]

log = Log("coordlock")

#: How many contenders one script looks for.
_AT_ONCE: Final = 500
#: How many departures are remembered that nobody watched yet.
_REMEMBERED: Final = 4096
#: Seconds before another look after one that got no answer.
_PAUSE: Final = 0.5
#: Seconds added to the time that a session has left.
_MARGIN: Final = 0.005

OnDeparture = Callable[[Departure], None]
#: An id and an order: a contender of which a part of its set was gone comes back with its id.
_Name = tuple[str, int]
#: A contender, and the version of its value that is known; 0 where values do not matter.
_Asked = tuple[Contender, int]


@dataclass(slots=True)
class _Watch:
    on_departure: OnDeparture
    #: Whether its waiters' own departures are reported before.
    is_ordered: bool
    #: The value that it knows; 0 where other values do not matter.
    version: int


@dataclass(slots=True)
class _Watched:
    """A contender, its watches by their numbers, and when its session expires; None if unknown."""

    contender: Contender
    watches: dict[int, _Watch] = field(default_factory=dict)
    expires_at: float | None = None


class Watches:
    """All watches of a client. Safe for threads; callbacks are called without the lock.

    Args:
        ask: sends a request, behind the session in its arguments.
        is_own: whether a session is the client's own.
    """

    def __init__(
        self,
        ask: Callable[[Request[Any]], Promise[Any]],
        is_own: Callable[[str], bool],
        timers: Timers,
    ) -> None:
        self._ask: Final = ask
        self._is_own: Final = is_own
        self._timers: Final = timers
        self._lock: Final = threading.RLock()
        self._numbers: Final = itertools.count()
        self._watched: dict[_Name, _Watched] = {}
        #: What has left and was told, the latest last: how, and at which revision at the latest.
        self._gone: OrderedDict[_Name, tuple[Departure, int]] = OrderedDict()
        #: What a script has put under watch already, and when its session expires.
        self._arranged: OrderedDict[_Name, float] = OrderedDict()
        #: Departures after this revision were told, or are under way; None while that is unknown.
        self._since: int | None = None
        #: Those after this revision that were told are remembered.
        self._forgotten = 0
        #: Counts what makes a look for all worthless: gaps in the news, and sessions that ended.
        self._gaps = 0
        #: How many parts of the look for all are not answered yet.
        self._missing = 0
        self._is_deaf = False
        self._timer: Timer | None = None
        self._is_closed = False

    def opened(self, revision: int) -> None:
        """A session has begun at ``revision``, while the news came."""
        with self._lock:
            if not self._watched:
                self._since = revision

    def arranged(self, contender: Contender, left: int) -> None:
        """A script has put ``contender`` under watch, whose session has ``left`` microseconds."""
        with self._lock:
            expires_at = self._timers.clock.now() + left / MICROSECONDS + _MARGIN
            self._arranged[contender.id, contender.order] = expires_at
            while len(self._arranged) > _REMEMBERED:
                self._arranged.popitem(last=False)

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: OnDeparture,
        waiters: Sequence[Contender],
        *,
        changes: bool,
    ) -> Callable[[], None]:
        """See `Backend.watch`."""
        name, number = (contender.id, contender.order), next(self._numbers)
        with self._lock:
            if self._is_closed:
                return lambda: None
            gone = self._gone.get(name)
            is_told = self._since is not None and revision >= max(self._since, self._forgotten)
            version = contender.version if changes else 0
            expires_at = self._arranged.pop(name, None)
            is_ordered = bool(waiters) and not changes and is_told
            if gone is None:
                if (watched := self._watched.get(name)) is None:
                    watched = self._watched[name] = _Watched(contender)
                watched.watches[number] = _Watch(on_departure, is_ordered, version)
                if expires_at is not None:
                    watched.expires_at = expires_at
            is_arranged = expires_at is not None or self._is_own(contender.session)
        if gone is not None:
            on_departure(gone[0] if is_ordered else Departure.UNORDERED)
            return lambda: None
        if self._since is None:
            # A look for all that is under way does not ask for this one.
            if not self._look_for_all() and not self._is_deaf:
                self._look([(contender, version)])
        elif changes or not (is_told and is_arranged):
            self._look([(contender, version)])
        elif expires_at is not None and not self._looks_by(expires_at):
            self._set_timer()
        return partial(self._cancel, name, number)

    def _cancel(self, name: _Name, number: int) -> None:
        with self._lock:
            if (watched := self._watched.get(name)) is not None:
                watched.watches.pop(number, None)
                self._forget_unless_watched(name)

    def _forget_unless_watched(self, name: _Name) -> None:
        if not self._watched[name].watches:
            del self._watched[name]

    def reset(self) -> None:
        """Drop all watches: their session has ended."""
        with self._lock:
            for one in (self._watched, self._arranged, self._gone):
                one.clear()
            self._since, self._forgotten = None, 0
            self._gaps, self._missing = self._gaps + 1, 0

    def close(self) -> None:
        """Tell nothing any more."""
        with self._lock:
            self._is_closed = True
            self.reset()
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    # The news

    def told(self, id: str, order: int, revision: int, *, was_first: bool) -> None:
        """A message says that a contender has left, at that ``revision``."""
        departure = Departure.FIRST if was_first else Departure.IN_ORDER
        self._left((id, order), revision, departure)

    def _left(self, name: _Name, revision: int, departure: Departure) -> None:
        with self._lock:
            if self._since is None:
                departure = Departure.UNORDERED
            self._gone[name] = departure, revision
            while len(self._gone) > _REMEMBERED:
                _, (_, forgotten) = self._gone.popitem(last=False)
                self._forgotten = max(self._forgotten, forgotten)
            watched = self._watched.pop(name, None)
        if watched is not None:
            for watch in watched.watches.values():
                _call(watch, departure if watch.is_ordered else Departure.UNORDERED)

    def has_value(self, id: str, order: int, version: int) -> None:
        """A contender has published its value of that ``version``."""
        name = (id, order)
        changed: list[_Watch] = []
        with self._lock:
            if (watched := self._watched.get(name)) is None:
                return
            for number, watch in list(watched.watches.items()):
                if watch.version and watch.version != version:
                    changed.append(watched.watches.pop(number))
            self._forget_unless_watched(name)
        for watch in changed:
            _call(watch, Departure.UNORDERED)

    def news_came_back(self) -> None:
        """There was a gap: look for all that is watched."""
        with self._lock:
            self._since, self._is_deaf = None, False
            self._arranged.clear()
            self._gaps, self._missing = self._gaps + 1, 0
            if not self._watched:
                return  # the next watch looks
        self._look_for_all()

    def news_stopped(self) -> None:
        """What leaves now is not told."""
        with self._lock:
            self._since, self._is_deaf = None, True
            self._arranged.clear()
            self._gaps, self._missing = self._gaps + 1, 0

    # Looking

    def _look_for_all(self) -> bool:
        """Ask for all that is watched, unless that is under way or the news are to come first."""
        with self._lock:
            if self._missing or self._is_deaf:
                return False
            asked = [
                (one.contender, version)
                for one in self._watched.values()
                for version in {watch.version for watch in one.watches.values()}
            ]
            parts = [asked[at : at + _AT_ONCE] for at in range(0, len(asked), _AT_ONCE)] or [[]]
            gaps, self._missing = self._gaps, len(parts)
        for part in parts:
            self._look(part, gaps)
        return True

    def _look(self, asked: list[_Asked], gaps: int | None = None) -> None:
        """Ask for contenders, and have their departures told.

        With ``gaps``, how many there have been, it is a part of a look for all.
        """
        arguments: list[Argument] = []
        for one, version in asked:
            arguments += (*names(one), str(version) if version else "")
        request = Request("watch", arguments, partial(self._seen, asked, gaps))
        self._ask(request).add_done_callback(partial(self._repeat, asked, gaps))

    def _repeat(self, asked: list[_Asked], gaps: int | None, done: Promise[None]) -> None:
        error = done.exception()
        if error is None or isinstance(error, SessionLost) or self._is_closed:
            return
        log.debug("redis: another look follows: %s", error)

        def again() -> None:
            with self._lock:
                if gaps not in (None, self._gaps):
                    return
                left = [one for one in asked if (one[0].id, one[0].order) in self._watched]
            if left or gaps is not None:
                self._look(left, gaps)

        with suppress(ClientClosed):
            self._timers.call_at(self._timers.clock.now() + _PAUSE, again)

    def _seen(self, asked: list[_Asked], gaps: int | None, answer: list[Any]) -> None:
        _, revision, *found = answer
        now = self._timers.clock.now()
        gone: list[Contender] = []
        changed: list[_Watch] = []
        with self._lock:
            for (one, version), status, left in zip(asked, found[::2], found[1::2], strict=True):
                name = (one.id, one.order)
                watched = self._watched.get(name)
                if status == 0:
                    gone.append(one)
                elif watched is not None:
                    if not self._is_own(one.session):
                        watched.expires_at = now + left / MICROSECONDS + _MARGIN
                    for number, watch in list(watched.watches.items()):
                        if status == 2 and watch.version == version:
                            changed.append(watched.watches.pop(number))
                    self._forget_unless_watched(name)
        for one in gone:
            self._left((one.id, one.order), revision, Departure.UNORDERED)
        for watch in changed:
            _call(watch, Departure.UNORDERED)
        with self._lock:
            if gaps == self._gaps:
                self._missing -= 1
                if not self._missing:
                    self._since = revision
        self._set_timer()

    def _set_timer(self) -> None:
        """Look again when the first session of those that are watched should have expired."""
        with self._lock:
            known = (one.expires_at for one in self._watched.values())
            when = min((one for one in known if one is not None), default=None)
            timer = self._timer
            if self._is_closed or when is None or self._looks_by(when):
                return
            with suppress(ClientClosed):
                self._timer = self._timers.call_at(when, self._expired)
        if timer is not None:
            timer.cancel()

    def _looks_by(self, when: float) -> bool:
        timer = self._timer
        return timer is not None and timer.action is not None and timer.when <= when

    def _expired(self) -> None:
        now = self._timers.clock.now()
        late: list[_Asked] = []
        with self._lock:
            for one in self._watched.values():
                if one.expires_at is not None and one.expires_at <= now:
                    one.expires_at = None
                    late.append((one.contender, 0))
        if late:
            self._look(late)
        self._set_timer()


def _call(watch: _Watch, departure: Departure) -> None:
    try:
        watch.on_departure(departure)
    except Exception:
        log.exception("the callback of a watch failed")
