"""The members of a group as observers show them: after an outage, also those that may return.

An outage that lasts takes the sessions of all members. They join again soon, and until then an
observer must not say that they have left. It knows of an outage by its own connection: members that
are lost while it hears the service have left.

Sessions send a heartbeat in each third of their time-to-live, so one that lost its connection for
less than a third is alive: departures in such a moment count as always.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from coordlock.backend import Observation
from coordlock.errors import ClientClosed
from coordlock.kernel.engine import Engine
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Owner, Snapshot
from coordlock.runtime.clock import Timer

__all__ = ["IDENTITY", "Member", "MemberList", "members_of", "next_members", "observe_members"]

#: How many digits of a contender's id tell who it is; the others differ for each time it joins.
IDENTITY: Final = 16


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group.

    Attributes:
        id: unique among all members there ever are. A presence, which joins again after each loss,
            keeps it.
        value: what it publishes.
        token: when it joined: greater than that of all who had joined before. None where the
            service doesn't tell.
        owner: its client, by its own account.
        confirmed: whether it is a member by the newest word of the service. False for one that was
            there before an outage and may return.
    """

    id: str
    value: bytes
    token: int | None
    owner: Owner | None
    confirmed: bool = True


def members_of(snapshot: Snapshot) -> tuple[Member, ...]:
    """The members in ``snapshot``, in the order in which they joined; each once."""
    found: dict[str, Member] = {}
    for one in snapshot.contenders:
        if one.claim is Mode.NL:
            member = _member(one)
            found.pop(member.id, None)  # its place of before its session was lost
            found[member.id] = member
    return tuple(found.values())


def _member(contender: Contender) -> Member:
    return Member(contender.id[:IDENTITY], contender.value or b"", contender.token, contender.owner)


@dataclass(frozen=True, slots=True)
class MemberList:
    """What an observer shows.

    Attributes:
        revision: of the service's state that it shows.
        members: those that are there, and those that may return.
        expected: who was there before an outage, and in seconds of the client's clock until when it
            is shown though it is missing.
    """

    revision: int
    members: tuple[Member, ...]
    expected: tuple[tuple[Member, float], ...] = ()

    @property
    def until(self) -> float:
        """When the next of those that are expected will have left, if it is missing then."""
        return min((until for _, until in self.expected), default=math.inf)


def next_members(
    before: MemberList | None,
    snapshot: Snapshot,
    now: float,
    grace: float,
    *,
    outage: float = 0.0,
) -> MemberList:
    """What an observer shows of ``snapshot``, which it has ``now``, after it has shown ``before``.

    Who was there before an outage is shown, unconfirmed, for ``grace`` seconds after it. ``outage``
    is how long one lasted just now. It stops the grace of those that were missing already, and
    gives them no new one: where one outage follows another, the dead would be shown for ever.
    """
    there = members_of(snapshot)
    expected = () if before is None else before.expected
    if before is not None and outage:
        left = {one.id: until + outage for one, until in expected}
        expected = tuple(
            (one, now + grace if one.confirmed else left[one.id]) for one in before.members
        )
    by_id = {one.id: one for one in there}
    # With what they publish by now, for the case that they leave before the grace is over.
    expected = tuple((by_id.get(one.id, one), until) for one, until in expected if now < until)
    missing = [replace(one, confirmed=False) for one, _ in expected if one.id not in by_id]
    members = sorted((*missing, *there), key=lambda one: one.token or 0) if missing else there
    return MemberList(snapshot.revision, tuple(members), expected)


def observe_members(
    engine: Engine,
    begin: Callable[[Callable[[], None]], Observation[Snapshot]],
    grace: float,
    news: Callable[[], None],
) -> Observation[MemberList]:
    """Observe the members in a queue that ``begin`` observes."""
    return _Tracker(engine, begin, grace, news).observation


class _Tracker:
    """Makes a list of each snapshot of the service, however slow the observer is."""

    def __init__(
        self,
        engine: Engine,
        begin: Callable[[Callable[[], None]], Observation[Snapshot]],
        grace: float,
        news: Callable[[], None],
    ) -> None:
        self._engine: Final = engine
        self._grace: Final = grace
        self._news: Final = news
        self._lock: Final = threading.RLock()
        self._last: MemberList | None = None
        self._stale_since: float | None = None
        #: When the last view came.
        self._heard = -math.inf
        self._timer: Timer | None = None
        self.observation: Final[Observation[MemberList]] = Observation(
            lambda: None, self._stop, engine.clock.now()
        )
        self._queue: Observation[Snapshot] | None = None
        self._queue = begin(self._look)
        self._look()  # news that came before it was kept was not looked at

    def _look(self) -> None:
        with self._lock:
            self._take()
        self._news()  # without the lock: a caller may go on here

    def _take(self) -> None:
        if self._queue is None:
            return
        view, now = self._queue.view, self._engine.clock.now()
        if view.ended is not None:
            self.observation.end(view.ended, now if view.stale_since is None else view.stale_since)
        elif view.stale_since is not None:
            self._stale_since = view.stale_since
            self.observation.doubt(view.stale_since)
        elif view.state is not None:
            since, self._stale_since = self._stale_since, None
            outage = 0.0
            if since is not None and now - since >= self._engine.settings.ttl / 3:
                outage = now - max(since, self._heard)  # a moment of doubt may begin before a view
            self._heard = now
            last = next_members(self._last, view.state, now, self._grace, outage=outage)
            if last.expected and (self._last is None or self._last.until != last.until):
                self._wake_at(last.until)
            self._last = last
            self.observation.show(last)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with suppress(ClientClosed):
            self._timer = self._engine.timers.call_at(when, self._look)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._queue is not None:
            self._queue.cancel()
