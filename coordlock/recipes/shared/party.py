"""One party at a barrier: it waits until as many stand there as the barrier takes.

A party is a contender in mode NL, in the queue of the barrier's name: it waits for none, and leaves
with its session, so that a dead party does not count. A party that sees enough of them writes the
trip in one step that all of them guard, and that expects the record as it was read. So exactly
these stood there at that moment, and no party is in two trips. The others find their ids in the
record.

When the time is up, a party withdraws first and reads the record then. A trip needs it in the queue
in the same step. So once it has certainly left, no trip takes it along any more, and one that did
before is in what is read: it has passed or it has not, and hears which. It is the same when its
session is lost.

A request to arrive that had no answer may come late, when its party has given up: until that is
removed again, it counts as a party that is about to die.

A trip takes the first in the queue, so all that have passed stand before all that wait. The queue
that a party reads shows itself, and so whoever stands before it: those who have passed and are not
there have left for good, and the record may drop them.
"""

from __future__ import annotations

import json
from copy import copy
from typing import Any, Final

from coordlock.backend import (
    Expect,
    Listing,
    ObservableQueues,
    Observation,
    Put,
    data,
    values,
)
from coordlock.errors import (
    BackendUnavailable,
    BarrierTimeout,
    Evicted,
    QueueMismatch,
    SessionLost,
    Unsupported,
    VersionMismatch,
)
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.announcement import Announcement
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.names import escape
from coordlock.recipes.shared.bell import Bell
from coordlock.recipes.shared.trips import Trips
from coordlock.recipes.shared.waiting import waiting_until
from coordlock.runtime.clock import sleep, within
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps

__all__ = ["FOLDER", "MOST", "Party", "check_parties", "queues_of"]

#: Where the records of all barriers are kept.
FOLDER: Final = "@barriers"
#: How many parties a barrier may have: etcd takes 128 operations in one transaction.
MOST: Final = 100
#: Seconds after which a party writes the trip in place of the last of them.
_HELP: Final = 1.0
#: Seconds between two attempts to write it, where the first had no answer.
_PAUSE: Final = 0.1


def check_parties(parties: object) -> int:
    """``parties``, a number that a barrier can have. Raises ValueError for another."""
    if type(parties) is not int or not 1 <= parties <= MOST:
        raise ValueError(
            f"parties must be an integer from 1 to {MOST}, which etcd takes in one transaction, "
            f"not {parties!r}"
        )
    return parties


def queues_of(engine: Engine) -> ObservableQueues:
    """The backend, as far as parties need it. Raises `Unsupported` where it can't."""
    data.of(engine.backend)
    values.of(engine.backend)
    if isinstance(engine.backend, ObservableQueues):
        return engine.backend
    raise Unsupported(f"the {engine.backend.scheme} backend cannot tell who comes to a barrier")


class Party:
    """One call of a barrier, from its arrival on."""

    def __init__(self, engine: Engine, name: str, parties: int, kind: str) -> None:
        """``kind`` is "barrier" or "double barrier"."""
        self._engine: Final = engine
        self._name: Final = name
        self._parties: Final = parties
        self._kind: Final = kind
        self._queues: Final = queues_of(engine)
        self._service: Final = data.of(engine.backend)
        self._key: Final = f"{engine.data_root}/{FOLDER}/{escape(name)}"
        self._ticket: Ticket | None = None
        #: How many were there when it was last seen, this one too.
        self._there = 1
        #: How many trips there were when this one was last seen standing, and not to have passed;
        #: None before it has looked.
        self._seen: int | None = None
        #: The ids of those that have passed with it.
        self._cohort: frozenset[str] = frozenset()

    def arrive(self, seconds: float | None) -> Steps[None]:
        """Stand at the barrier until it is passed; stands there still then.

        None waits for ever, and 0 looks once. However it ends otherwise, the party is withdrawn.
        """
        engine = self._engine
        started = engine.clock.now()
        value = json.dumps({"barrier": self._kind, "parties": self._parties}).encode()
        claims, announcement = {self._name: Mode.NL}, Announcement(value)
        ticket = yield from acquisition(engine, claims, seconds, announcement=announcement)
        self._ticket = ticket
        try:
            left = None if seconds is None else seconds - (engine.clock.now() - started)
            yield engine.deadline(engine.settings.request_timeout if seconds == 0 else left)
            try:
                self._cohort = yield from self._meeting(ticket, once=seconds == 0)
            except DeadlineReached:
                self._cohort = yield from self._settled(ticket)
                if not self._cohort:
                    waited, there = engine.clock.now() - started, self._there
                    problem = f"{self._described} had {there} of {self._parties} parties"
                    raise BarrierTimeout(
                        self._name, waited, problem, there, self._parties
                    ) from None
            except (SessionLost, Evicted):
                self._cohort = yield from self._settled(ticket)
                if not self._cohort:
                    raise
        except BaseException:
            ticket.withdraw()
            raise

    def go(self) -> None:
        """Leave, in the background."""
        if self._ticket is not None:
            self._ticket.withdraw()

    def depart(self, seconds: float | None) -> Steps[None]:
        """Leave, and wait until all that have passed together have left."""
        ticket, engine = self._ticket, self._engine
        assert ticket is not None
        lost, removal = ticket.lost, ticket.withdraw()
        if lost is not None:
            raise copy(lost)
        yield engine.deadline(engine.settings.request_timeout)
        try:
            was_there = yield removal
        except DeadlineReached as late:
            raise engine.silent(late) from late.__cause__
        if not was_there:
            raise Evicted(self._name)

        def still(snapshot: Snapshot) -> int:
            return sum(one.id in self._cohort for one in snapshot.contenders)

        def in_vain(snapshot: Snapshot, waited: float) -> BarrierTimeout:
            there = still(snapshot)
            problem = f"{self._described} was not left by {there} of {self._parties} parties"
            return BarrierTimeout(self._name, waited, problem, there, self._parties)

        yield from waiting_until(
            engine,
            lambda news: self._queues.observe(self._name, news),
            lambda snapshot: not still(snapshot),
            seconds,
            in_vain,
        )

    def _meeting(self, ticket: Ticket, *, once: bool) -> Steps[frozenset[str]]:
        """Wait until this one has passed; with whom. Raises what ends the wait."""
        timers, helps = self._engine.timers, once
        bell = Bell()
        seen: list[Observation[Any]] = []
        me = ticket.contenders[0]
        try:
            queue = self._queues.observe(self._name, bell.ring)
            seen.append(queue)
            record = self._service.follow(self._key, bell.ring)
            seen.append(record)
            while True:
                news = bell.next  # before the look, so that what comes after that is waited for
                ticket.check()
                for one in seen:
                    if (ended := one.view.ended) is not None:
                        raise copy(ended)
                snapshot, listing = queue.view.state, record.view.state
                if snapshot is not None and listing is not None:
                    trips = self._trips(listing)
                    if cohort := trips.cohort_of(me.id):
                        return cohort
                    self._seen = max(self._seen or 0, trips.generation)
                    first = self._first(me, snapshot, trips)
                    self._there = len(first)
                    if self._takes(first, me):
                        if not helps and first[-1].id != me.id:
                            # All of them would write the same: the last one does it.
                            yield within(timers, news, _HELP)
                            helps = not news.done()
                            continue
                        if cohort := (yield from self._trip(me)):
                            return cohort
                    if once:
                        raise DeadlineReached
                helps = once
                yield ticket.unless_lost(news)
        finally:
            for one in seen:
                one.cancel()

    def _trip(self, me: Contender) -> Steps[frozenset[str] | None]:
        """Let the first in the queue pass, with ``me`` among them; None where that is over."""
        timers, backend = self._engine.timers, self._engine.backend
        while True:
            trips = self._trips((yield from retried(self._read, timers)))
            if cohort := trips.cohort_of(me.id):
                return cohort
            snapshot = yield from retried(lambda: backend.snapshot(self._name, owners=True), timers)
            first = self._first(me, snapshot, trips)
            if not self._takes(first, me):
                return None
            ids, standing = [one.id for one in first], {one.id for one in snapshot.contenders}
            trip = Put(self._key, trips.after(ids, standing))
            try:
                yield self._service.write([Expect(self._key, trips.version), trip], first)
                return frozenset(ids)
            except (VersionMismatch, Evicted):
                return None  # of which there is news
            except BackendUnavailable:
                yield sleep(timers, _PAUSE)

    def _takes(self, first: list[Contender], me: Contender) -> bool:
        """Whether the ``first`` are enough for a trip that takes ``me`` along."""
        return len(first) == self._parties and any(one.id == me.id for one in first)

    def _settled(self, ticket: Ticket) -> Steps[frozenset[str]]:
        """Leave, and find out whether this one had passed; with whom, or nobody."""
        engine = self._engine
        yield engine.deadline(engine.settings.request_timeout)
        try:
            if self._seen is None and ticket.lost is None:
                # While it stands there, the record lists it if it has passed. So only the trips
                # from this look on can be unknown, and not all there ever were.
                trips = self._trips((yield from retried(self._read, engine.timers)))
                if cohort := trips.cohort_of(ticket.contenders[0].id):
                    return cohort
                if (yield ticket.withdraw()):  # else it may have been gone before the look
                    self._seen = trips.generation
            yield ticket.withdraw()
            trips = self._trips((yield from retried(self._read, engine.timers)))
        except DeadlineReached as late:
            silent = engine.silent(late)
            reason = f"{silent.reason}; {self._described} may have been passed, or may be yet"
            raise BackendUnavailable(silent.service, reason) from late.__cause__
        cohort = trips.cohort_of(ticket.contenders[0].id)
        if cohort is None and trips.whole_from > (self._seen or 0) + 1:
            reason = "was passed so often meanwhile that it is unknown whether this party was in"
            raise BackendUnavailable(str(engine.settings), f"{self._described} {reason}")
        return cohort or frozenset()

    def _read(self) -> Any:
        return self._service.read(self._key)

    def _trips(self, listing: Listing) -> Trips:
        return Trips.read(listing, self._key, str(self._engine.settings))

    def _first(self, me: Contender, snapshot: Snapshot, trips: Trips) -> list[Contender]:
        """The first of those that wait in ``snapshot``, as many as the barrier takes.

        Raises `QueueMismatch` for one before ``me`` that takes this for another barrier.
        """
        passed = trips.passed
        waiting: dict[str, Contender] = {}  # by id: what was sent twice may stand there twice
        for one in snapshot.contenders:
            if one.claim is Mode.NL and one.id not in passed:
                waiting.setdefault(one.id, one)
        for one in waiting.values():
            if one.order < me.order and (found := _shown(one)) != self._shown:
                raise QueueMismatch(self._name, self._shown, found, str(one))
        return [one for one in waiting.values() if _shown(one) == self._shown][: self._parties]

    @property
    def _shown(self) -> str:
        return f"a {self._kind} of {self._parties}"

    @property
    def _described(self) -> str:
        return f"{self._kind} {self._name!r}"


def _shown(contender: Contender) -> str:
    """As what ``contender`` uses its queue."""
    try:
        fields: Any = json.loads(contender.value or b"")
        return f"a {fields['barrier']} of {fields['parties']}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return "something else than a barrier"
