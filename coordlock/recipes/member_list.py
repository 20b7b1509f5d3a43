"""The members of a group as observers show them: after an outage, also those that may return.

A long outage ends the sessions of all members. They join again soon, and until then an observer
must not say that they have left. It learns of an outage by its own connection: members that are
lost while it is connected have left.

Sessions send a heartbeat in each third of their time-to-live. One that lost its connection for less
than a third is alive, so departures in such a moment count as always.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from coordlock.backend import Observation, Queue, View
from coordlock.errors import ClientClosed
from coordlock.kernel.engine import Engine
from coordlock.model.claim import Mode
from coordlock.model.contender import Owner, Snapshot
from coordlock.runtime.clock import Timer

__all__ = ["IDENTITY", "Member", "MemberList", "members_of", "next_members", "observe_members"]

#: How many digits of a contender's id identify the member; the others differ at each join.
IDENTITY: Final = 16


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group.

    Attributes:
        id: unique among all members ever. A presence, which joins again after each loss, keeps its
            id.
        value: what it publishes.
        token: orders members by when they joined: greater than the tokens of all earlier ones. None
            if the service does not tell.
        owner: its client, as it describes itself.
        confirmed: whether the service lists it as a member now. False for a member from before an
            outage that may return.
    """

    id: str
    value: bytes
    token: int | None
    owner: Owner | None
    confirmed: bool = True


def members_of(snapshot: Snapshot) -> tuple[Member, ...]:
    """The members in ``snapshot``, in the order in which they joined; each once."""
    found: dict[str, Member] = {}
    for contender in snapshot.contenders:
        if contender.claim is Mode.NL:
            id = contender.id[:IDENTITY]
            found.pop(id, None)  # its contender from before its session was lost
            found[id] = Member(id, contender.value or b"", contender.token, contender.owner)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class MemberList:
    """What an observer shows.

    Attributes:
        snapshot: the queue.
        expected: members from before an outage, each with the time of the client's clock until
            which it is shown though it is missing.
    """

    snapshot: Snapshot
    expected: tuple[tuple[Member, float], ...] = ()

    @property
    def revision(self) -> int:
        """Of the service's state that it shows."""
        return self.snapshot.revision

    @property
    def members(self) -> tuple[Member, ...]:
        """Those in the queue, and those that may return.

        Made when asked for: where a thousand join, an observer looks at few of the lists.
        """
        there = members_of(self.snapshot)
        if not self.expected:
            return there
        ids = {member.id for member in there}
        missing = (
            replace(member, confirmed=False) for member, _ in self.expected if member.id not in ids
        )
        return tuple(sorted((*missing, *there), key=lambda member: member.token or 0))

    @property
    def until(self) -> float:
        """When the grace of the next expected member ends."""
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

    Members from before an outage are shown, unconfirmed, for ``grace`` seconds after it. ``outage``
    is how long one lasted just now. It stops the grace of those that were missing already, and
    gives them no new one: if one outage follows another, the dead would be shown for ever.
    """
    expected = () if before is None else before.expected
    if before is not None and outage:
        left = {member.id: until + outage for member, until in expected}
        expected = tuple(
            (member, now + grace if member.confirmed else left[member.id])
            for member in before.members
        )
    if expected:
        by_id = {member.id: member for member in members_of(snapshot)}
        # With what they publish by now, in case they leave before the grace is over.
        expected = tuple(
            (by_id.get(member.id, member), until) for member, until in expected if now < until
        )
    return MemberList(snapshot, expected)


def observe_members(
    engine: Engine, queue: str, grace: float, news: Callable[[], None]
) -> Observation[MemberList]:
    """Observe the members in ``queue``."""
    return _Tracker(engine, queue, grace, news).observation


class _Tracker:
    """Makes a list of each snapshot of the service, however slow the observer is."""

    def __init__(self, engine: Engine, queue: str, grace: float, news: Callable[[], None]) -> None:
        self._engine: Final = engine
        self._grace: Final = grace
        self._news: Final = news
        self._lock: Final = threading.RLock()
        self._stale_since: float | None = None
        #: When the last snapshot came.
        self._heard = -math.inf
        self._timer: Timer | None = None
        self.observation: Final[Observation[MemberList]] = Observation(
            lambda: None, self._stop, engine.clock.now()
        )
        self._queue: Observation[Snapshot] | None = None
        self._queue = engine.backend.follow(Queue(queue), self._look)
        self._look()  # the first snapshot may have come before the line above returned

    def _look(self) -> None:
        with self._lock:
            if self._queue is not None:
                self._take(self._queue.view)
        self._news()  # without the lock: a caller may go on here

    def _take(self, view: View[Snapshot]) -> None:
        now, before = self._engine.clock.now(), self.observation.view.state
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
            shown = next_members(before, view.state, now, self._grace, outage=outage)
            if shown.expected and (before is None or before.until != shown.until):
                self._wake_at(shown.until)
            self.observation.show(shown)

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
