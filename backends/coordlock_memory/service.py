"""The service: sessions that expire, queues in order, and watches of departures."""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from coordlock.backend import (
    Delete,
    Departure,
    Expect,
    Listing,
    Operation,
    Put,
    Queue,
    Read,
    VersionedValue,
    Written,
)
from coordlock.backend.watch_table import Watched, WatchTable
from coordlock.errors import Evicted, SessionLost, VersionMismatch
from coordlock.model.admission import is_blocked
from coordlock.model.claim import Convertible
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.model.names import is_internal
from coordlock.runtime.clock import SystemTimers, Timer, Timers
from coordlock_memory.faults import Faults

__all__ = ["MemoryService"]


#: A queue, or a key or folder of the data.
_Place = Queue | str
#: A contender that has left, and how.
_Departed = tuple[Contender, Departure]


@dataclass
class _SessionRecord:
    id: str
    ttl: float
    on_loss: Callable[[str], object]
    deadline: float
    expiry: Timer | None = None


@dataclass
class _State:
    """All that the service knows. Contenders are in ascending order by construction."""

    sessions: dict[str, _SessionRecord] = field(default_factory=dict)
    queues: dict[str, dict[str, Contender]] = field(default_factory=dict)
    data: dict[str, VersionedValue] = field(default_factory=dict)
    #: What to call when a queue, or a key or folder of the data, has changed.
    observers: list[tuple[_Place, Callable[[], None]]] = field(default_factory=list)


class MemoryService:
    """An ideal coordination service inside one process. Safe for threads.

    ``timers`` may be virtual. Every method takes effect at once and in one step.
    """

    def __init__(self, timers: Timers | None = None) -> None:
        self._given_timers = timers
        self._timers = timers or SystemTimers("coordlock-memory")
        self._lock = threading.RLock()
        self._state = _State()
        self._watches: WatchTable[Watched] = WatchTable(self._lock)
        self._revisions = itertools.count(1)
        self._numbers = itertools.count(1)
        self._revision = 0
        #: Tells the time of day.
        self.time: Callable[[], float] = time.time

    def connected(self, network: Faults) -> None:
        """Another client has this ``network``. For services that break it."""

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits for news."""
        return bool(self._watches.watched or self._state.observers)

    def open(self, ttl: float, on_loss: Callable[[str], object]) -> str:
        """Start a session that lives ``ttl`` seconds from its last heartbeat; its id.

        ``on_loss`` is called with the reason when it expires.
        """
        with self._lock:
            if not self._state.sessions and self._given_timers is None:
                self._timers = SystemTimers("coordlock-memory")
            deadline = self._timers.clock.now() + ttl
            session = _SessionRecord(f"memory-{next(self._numbers)}", ttl, on_loss, deadline)
            self._state.sessions[session.id] = session
            self._expire(session)
        return session.id

    def heartbeat(self, id: str) -> float:
        """Extend the session; its time-to-live. Raises `SessionLost`."""
        with self._lock:
            session = self._session(id)
            session.deadline = self._timers.clock.now() + session.ttl
            return session.ttl

    def enqueue(
        self, id: str, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> tuple[Snapshot, ...]:
        """Add a contender for each entry, unless the session has all of them already.

        The snapshots show what the contract asks for.
        """
        with self._lock:
            self._session(id)
            if unless_blocked:
                present = tuple(self.snapshot(entry.queue) for entry in entries)
                if any(map(is_blocked, present, entries)):
                    return present
            there = [self._find(entry) for entry in entries]
            found = [one for one in there if one is not None and one.session == id]
            gone = []
            if len(found) < len(entries):
                gone = self._take_all(entries)
                self._revision = token = next(self._revisions)
                found = [self._add(id, entry, token) for entry in entries]
            snapshots = tuple([self.snapshot(_queue(mine), mine) for mine in found])
        for departure in gone:
            self._report(*departure)
        self._tell(*[Queue(entry.queue) for entry in entries])
        return snapshots

    def publish(self, contender: Contender, value: bytes, version: int) -> None:
        """Set the contender's value, unless it is set. Raises `Evicted`, `VersionMismatch`."""
        with self._lock:
            self._admit(contender)
            contenders = self._state.queues[_queue(contender)]
            found = contenders[contender.key]
            if (found.version, found.value) == (version + 1, value):
                return
            if found.version != version:
                raise VersionMismatch(contender.key, version)
            self._revision = next(self._revisions)
            claim = found.claim
            if isinstance(claim, Convertible):
                claim = Convertible.decode(value)
            contenders[found.key] = replace(found, claim=claim, value=value, version=version + 1)
            watched = self._watches.watched.get((found.key, found.order))
        if watched is not None:
            self._watches.report_value(watched, version + 1)
        self._tell(Queue(_queue(contender)))

    def snapshot(self, queue: str, upto: Contender | None = None) -> Snapshot:
        """The queue, or no more of it before ``upto`` than the contract asks for."""
        with self._lock:
            contenders = list(self._state.queues.get(queue, {}).values())
            omitted = 0
            if upto is not None:
                contenders = [one for one in contenders if one.order <= upto.order]
                last = contenders[-1].order if contenders else 0
                window = upto.claim.window + (last == upto.order)
                omitted = max(0, len(contenders) - window)
            return Snapshot(queue, tuple(contenders[omitted:]), self._revision, omitted)

    def watch(
        self,
        contender: Contender,
        on_departure: Callable[[Departure], None],
        waiters: Sequence[Contender] = (),
        *,
        changes: bool = False,
    ) -> Callable[[], None]:
        """Call ``on_departure`` once when ``contender`` has left; what cancels that.

        With ``changes``, also when its value is not that of ``contender`` any more.
        """
        with self._lock:
            found = self._there(contender)
            if found is not None and (not changes or found.version == contender.version):
                watched = Watched((contender.key, contender.order))
                version = found.version if changes else 0
                return self._watches.add(watched, on_departure, waiters, version)[1]
        on_departure(Departure.UNORDERED)
        return lambda: None

    def observe(self, place: _Place, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed`` after each change of ``place``; what ends that."""
        observer = place, changed

        def end() -> None:
            with self._lock:  # `remove` compares, so another thread could change the list meanwhile
                self._state.observers.remove(observer)

        self._state.observers.append(observer)
        return end

    def withdraw(self, entries: Sequence[Entry]) -> bool:
        """Remove the entries' contenders in one step, whatever their session.

        Whether all of them were there.
        """
        with self._lock:
            gone = self._take_all(entries)
        for departure in gone:
            self._report(*departure)
        return len(gone) == len(entries)

    def remove(self, contender: Contender) -> bool:
        """Remove a contender and tell its watchers; whether it was there."""
        with self._lock:
            gone = self._take(contender.key)
        for departure in gone:
            self._report(*departure)
        return bool(gone)

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Written:
        """Do all of ``operations`` or raise: `Evicted` or `VersionMismatch`."""
        with self._lock:
            for contender in guards:
                self._admit(contender)
            data = self._state.data
            for one in operations:
                if isinstance(one, Expect) and one.version != _version(data.get(one.key)):
                    raise VersionMismatch(one.key, one.version)
            written = [one for one in operations if isinstance(one, Put | Delete)]
            if written:
                self._revision = next(self._revisions)
            for one in written:
                if isinstance(one, Put):
                    data[one.key] = VersionedValue(one.data, _version(data.get(one.key)) + 1)
                else:
                    data.pop(one.key, None)
            revision = self._revision
            read = [one.key for one in operations if isinstance(one, Read)]
            values = {key: data[key] for key in read if key in data}
        self._tell(*{place for one in written for place in (one.key, _folder(one.key))})
        return Written(revision, values=values)

    def read(self, where: str, guard: Contender | None = None) -> Listing:
        """What is kept under a key, or directly in a folder, which ends with a slash.

        Raises `Evicted` unless ``guard`` stands in its queue.
        """
        with self._lock:
            if guard is not None:
                self._admit(guard)
            stored = sorted(self._state.data.items())
            found = {key: value for key, value in stored if where in (key, _folder(key))}
            return Listing(found, self._revision)

    def names(self, folder: str, first: int | None = None, split: str = "") -> list[str]:
        """The names of the first keys in a folder, before ``split`` and from it on."""
        names = [key.removeprefix(folder) for key in self.read(folder).values]
        middle = bisect_left(names, split)
        return [*names[:middle][:first], *names[middle:][:first]]

    def queues(self) -> list[str]:
        """The queues that have contenders."""
        with self._lock:
            return [name for name in self._state.queues if not is_internal(name)]

    def sessions(self) -> list[str]:
        """The ids of the live sessions."""
        with self._lock:
            return list(self._state.sessions)

    def expire(self, id: str, reason: str = "it expired") -> None:
        """End a session as its time-to-live would: its client is told, its contenders leave."""
        self._end(id, reason)

    def close(self, id: str) -> None:
        """End a session at its client's wish."""
        self._end(id)

    def _end(self, id: str, reason: str = "") -> None:
        with self._lock:
            session = self._state.sessions.pop(id, None)
            if session is not None and session.expiry is not None:
                session.expiry.cancel()
            idle = self._timers if not self._state.sessions and self._given_timers is None else None
            queues = list(self._state.queues.values())
            contenders = [one for queue in queues for one in queue.values() if one.session == id]
        if idle is not None:
            idle.close()
        if session is not None and reason:
            session.on_loss(reason)
        for contender in contenders:
            self.remove(contender)

    def _session(self, id: str) -> _SessionRecord:
        session = self._state.sessions.get(id)
        if session is None or self._timers.clock.now() >= session.deadline:
            raise SessionLost("memory", "it expired")
        return session

    def _expire(self, session: _SessionRecord) -> None:
        """Expire it if it is time; else later: one timer per session, not one per heartbeat."""
        with self._lock:
            is_late = self._timers.clock.now() >= session.deadline
            if not is_late:
                again = partial(self._expire, session)
                session.expiry = self._timers.call_at(session.deadline, again)
        if is_late:
            self.expire(session.id)

    def _add(self, session: str, entry: Entry, token: int) -> Contender:
        """Put a new contender at the end of its queue."""
        made = Contender(
            id=entry.id,
            key=_key(entry),
            claim=entry.claim,
            order=token,
            token=token,
            session=session,
            owner=entry.owner,
            value=entry.value,
            version=1,
        )
        self._state.queues.setdefault(entry.queue, {})[made.key] = made
        return made

    def _take(self, key: str) -> list[_Departed]:
        """Remove the contender ``key``, if it is there; the lock is held."""
        queue = key.rpartition("/")[0]
        contenders = self._state.queues.get(queue, {})
        was_first = next(iter(contenders), None) == key
        if (gone := contenders.pop(key, None)) is None:
            return []
        if not contenders:
            del self._state.queues[queue]
        self._revision = next(self._revisions)
        return [(gone, Departure.FIRST if was_first else Departure.IN_ORDER)]

    def _take_all(self, entries: Sequence[Entry]) -> list[_Departed]:
        """Remove the contenders of ``entries`` that are there; the lock is held."""
        gone = []
        for entry in entries:
            gone += self._take(_key(entry))
        return gone

    def _report(self, gone: Contender, departure: Departure) -> None:
        if (watched := self._watches.watched.get((gone.key, gone.order))) is not None:
            self._watches.report(watched, lambda _: departure)
        self._tell(Queue(_queue(gone)))

    def _tell(self, *places: _Place) -> None:
        """Tell the observers of ``places``."""
        for place, changed in self._state.observers.copy():
            if place in places:
                changed()

    def _there(self, contender: Contender) -> Contender | None:
        found = self._state.queues.get(_queue(contender), {}).get(contender.key)
        return found if found is not None and found.order == contender.order else None

    def _admit(self, contender: Contender) -> None:
        if self._there(contender) is None:
            raise Evicted(_queue(contender))

    def _find(self, entry: Entry) -> Contender | None:
        return self._state.queues.get(entry.queue, {}).get(_key(entry))


def _key(entry: Entry) -> str:
    return f"{entry.queue}/{entry.claim.marker}-{entry.id}"


def _queue(contender: Contender) -> str:
    return contender.key.rpartition("/")[0]


def _version(stored: VersionedValue | None) -> int:
    return 0 if stored is None else stored.version


def _folder(key: str) -> str:
    return key.rpartition("/")[0] + "/"
