"""Departures: what the client watches, and how it learns that it has left.

Redis tells a departure to the inboxes of those who watch the contender and of the client whose it
was. Messages come in the order in which things happened. What depends on none of them coming:

* After each gap in the news, the client asks for all that it watches.
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

from coordlock.errors import ClientClosed, SessionLost
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Timer, Timers, soon
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

#: Of a departure that no message tells.
_UNKNOWN: Final = (False, False)
#: Stands for every order of an id that never comes back.
_ANY: Final = 0

Told = Callable[[bool], None]
#: Whether a message says so, in its order; and whether no other contender stood before.
_Gone = tuple[bool, bool]
#: An id and an order: a contender of which a part of its set was gone comes back with its id.
_Name = tuple[str, int]
#: A contender, and the version of its value that is known; 0 where values do not matter.
_Asked = tuple[Contender, int]


@dataclass(slots=True)
class _Watch:
    told: Told
    #: Whether its waiters' own departures are told before.
    is_ordered: bool
    #: The value that it knows; 0 where other values do not matter.
    version: int
    #: The thread that watches.
    thread: int = field(default_factory=threading.get_ident)


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
        #: Their orders, by their ids.
        self._orders: dict[str, tuple[int, ...]] = {}
        #: The ids of those that own contenders wait for, or have waited for.
        self._waited: set[str] = set()
        #: What has left and was told, the latest last, and how.
        self._gone: OrderedDict[_Name, _Gone] = OrderedDict()
        #: What a script has put under watch already, and when its session expires.
        self._arranged: OrderedDict[_Name, float] = OrderedDict()
        #: Departures after this revision were told, or are under way; None while that is unknown.
        self._since: int | None = None
        #: Counts the gaps in the news.
        self._gaps = 0
        self._is_looking_for_all = self._is_deaf = False
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
            _remember(self._arranged, (contender.id, contender.order), expires_at)

    def watch(
        self,
        contender: Contender,
        revision: int,
        told: Told,
        waiters: Sequence[Contender],
        *,
        changes: bool,
    ) -> Callable[[], None]:
        """See `Backend.watch`."""
        name, number = (contender.id, contender.order), next(self._numbers)
        with self._lock:
            if self._is_closed:
                return lambda: None
            is_gone = name in self._gone or (contender.id, _ANY) in self._gone
            is_told = self._since is not None and revision >= self._since
            in_order = is_told and bool(waiters) and self._gone.get(name, _UNKNOWN)[0]
            version = contender.version if changes else 0
            expires_at = self._arranged.pop(name, None)
            if not is_gone:
                if (watched := self._watched.get(name)) is None:
                    self._orders[contender.id] = (
                        *self._orders.get(contender.id, ()),
                        contender.order,
                    )
                    watched = self._watched[name] = _Watched(contender)
                if waiters:
                    self._waited.add(contender.id)
                is_ordered = bool(waiters) and not changes and is_told
                watched.watches[number] = _Watch(told, is_ordered, version)
                if expires_at is not None:
                    watched.expires_at = expires_at
            is_arranged = expires_at is not None or self._is_own(contender.session)
        if is_gone:
            told(in_order and not changes)
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
            self._pop(name)

    def _pop(self, name: _Name) -> _Watched | None:
        id, order = name
        orders = self._orders.pop(id, ())
        if len(orders) > 1:
            self._orders[id] = tuple([one for one in orders if one != order])
        else:
            self._waited.discard(id)
        return self._watched.pop(name, None)

    def is_watched(self, id: str) -> bool:
        """Whether a contender with that id is watched."""
        return id in self._orders

    @property
    def is_any_waited_for(self) -> bool:
        """Whether an own contender may wait for the departure of another one."""
        return bool(self._waited)

    def is_waited_for(self, id: str) -> bool:
        """Whether an own contender may wait for the departure of one with that id."""
        return id in self._waited

    def reset(self) -> None:
        """Drop all watches: their session has ended."""
        with self._lock:
            for one in (self._watched, self._orders, self._waited, self._arranged, self._gone):
                one.clear()
            self._is_looking_for_all = False

    def close(self) -> None:
        """Tell nothing any more."""
        with self._lock:
            self._is_closed = True
            self.reset()
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    # The news

    def told(self, id: str, order: int, *, was_first: bool, is_own: bool) -> bool:
        """A message says that a contender has left.

        If ``is_own``, the calling thread waits for such news. Then this does nothing, and returns
        False, if another thread watches that contender, too.
        """
        watched = self._watched.get((id, order))
        if is_own and watched is not None:
            me = threading.get_ident()
            for watch in list(watched.watches.values()):
                if watch.thread != me:
                    return False
        self._left((id, order), in_order=True, was_first=was_first)
        return True

    def _left(self, name: _Name, *, in_order: bool, was_first: bool = False) -> None:
        with self._lock:
            in_order = in_order and self._since is not None
            _remember(self._gone, name, (in_order, was_first))
            watched = self._watched.get(name)
        if watched is not None:
            for watch in list(watched.watches.values()):
                _call(watch.told, in_order and watch.is_ordered)
            with self._lock:  # not before: what a signal handler ends half-way is told again
                if self._watched.get(name) is watched:
                    self._pop(name)

    def was_first(self, contender: Contender) -> bool:
        """Whether a message says that it has left, and stood before all others then."""
        return self._gone.get((contender.id, contender.order), _UNKNOWN)[1]

    def withdrawn(self, id: str) -> None:
        """The own contender of that id has left, and no message says so."""
        with self._lock:
            _remember(self._gone, (id, _ANY), _UNKNOWN)
            orders = self._orders.get(id, ())
        for order in orders:
            tell = partial(self._left, (id, order), in_order=False)
            if id in self._waited:
                soon(self._timers, tell)  # Ctrl-C may end what is called here
            else:
                tell()

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
            _call(watch.told, False)

    def news_came_back(self) -> None:
        """There was a gap: look for all that is watched."""
        with self._lock:
            self._since, self._is_looking_for_all, self._is_deaf = None, False, False
            self._arranged.clear()
            self._gaps += 1
            if not self._watched:
                return  # the next watch looks
        self._look_for_all()

    def news_stopped(self) -> None:
        """What leaves now is not told."""
        with self._lock:
            self._since, self._is_looking_for_all, self._is_deaf = None, False, True
            self._arranged.clear()
            self._gaps += 1

    # Looking

    def _look_for_all(self) -> bool:
        """Ask for all that is watched, unless that is under way or the news are to come first."""
        with self._lock:
            if self._is_looking_for_all or self._is_deaf:
                return False
            self._is_looking_for_all = True
            asked = [
                (one.contender, version)
                for one in self._watched.values()
                for version in {watch.version for watch in one.watches.values()}
            ]
            gaps = self._gaps
        parts = [asked[at : at + _AT_ONCE] for at in range(0, len(asked), _AT_ONCE)]
        for part in parts[:-1]:
            self._look(part)
        self._look(parts[-1] if parts else [], gaps)
        return True

    def _look(self, asked: list[_Asked], gaps: int | None = None) -> None:
        """Ask for contenders, and have their departures told.

        With ``gaps``, how many there have been, it is the last one of a look for all.
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
                if gaps is not None:
                    if gaps != self._gaps:
                        return
                    self._is_looking_for_all = False
                left = [one for one in asked if (one[0].id, one[0].order) in self._watched]
            if gaps is not None:
                self._look_for_all()
            elif left:
                self._look(left)

        with suppress(ClientClosed):
            self._timers.call_at(self._timers.clock.now() + _PAUSE, again)

    def _seen(self, asked: list[_Asked], gaps: int | None, answer: list[Any]) -> None:
        _, revision, *found = answer
        now = self._timers.clock.now()
        gone: list[Contender] = []
        changed: list[tuple[_Name, int, _Watch]] = []
        with self._lock:
            for (one, version), status, left in zip(asked, found[::2], found[1::2], strict=True):
                name = (one.id, one.order)
                watched = self._watched.get(name)
                if status == 0:
                    gone.append(one)
                elif watched is not None:
                    if not self._is_own(one.session):
                        watched.expires_at = now + left / MICROSECONDS + _MARGIN
                    for number, watch in watched.watches.items():
                        if status == 2 and watch.version == version:
                            changed.append((name, number, watch))
        for one in gone:
            self._left((one.id, one.order), in_order=False)
        for name, number, watch in changed:
            _call(watch.told, False)
            self._cancel(name, number)  # not before, as in `_left`
        with self._lock:
            if gaps is not None and gaps == self._gaps:
                self._since, self._is_looking_for_all = revision, False
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


def _remember(known: OrderedDict[_Name, Any], name: _Name, value: Any) -> None:
    known[name] = value
    while len(known) > _REMEMBERED:
        known.popitem(last=False)


def _call(told: Told, in_order: bool) -> None:
    try:
        told(in_order)
    except Exception:
        log.exception("the callback of a watch failed")
