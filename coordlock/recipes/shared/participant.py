"""One participant of a barrier: it waits until as many are there as the barrier takes.

A participant is a contender in mode NL, in the queue of the barrier's name. It waits for none, and
leaves with its session, so a dead one does not count. One that sees enough of them writes their ids
to the record beside the queue. All of them guard this write, and it expects the record's version.
So exactly these were in the queue at that moment, and none passes twice. The others find their ids
in the record.

When its time is up or its session is lost, a participant withdraws first and reads the record then.
Once it has certainly left, no generation includes it any more. If an earlier one did, it is in what
is read. So it has passed or it has not, and learns which.

A request to arrive that had no answer may be served late, when its participant has given up. Until
that contender is removed again, it counts as a participant that is about to die.

The first in the queue pass, so all that have passed are before all that wait. The queue that a
participant reads shows all contenders before itself. Those that have passed and are not there have
left for good, and the record may drop them.
"""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar, Final

from coordlock.backend import Observation, Queue
from coordlock.errors import (
    Evicted,
    SessionLost,
    WaitCancelled,
    WaitTimeout,
    WaitUnavailable,
)
from coordlock.kernel.access import Access
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.model.contender import Announcement, Contender, Snapshot
from coordlock.recipes.shared.observer import wait_until
from coordlock.recipes.shared.recipe import Recipe
from coordlock.recipes.shared.rendezvous import Generations, Rendezvous
from coordlock.records.stored_record import Folder, StoredRecord
from coordlock.runtime.clock import within
from coordlock.runtime.deadline import Cancellation, Cancelled, DeadlineReached
from coordlock.runtime.driver import Steps, awaited, bounded
from coordlock.runtime.promise import Condition

__all__ = ["BarrierRecipe", "Participant"]

#: Seconds after which a participant writes the record in place of the last one to arrive.
_HELP_DELAY_S: Final = 1.0


class Participant:
    """One call of a barrier, from its arrival on."""

    def __init__(self, engine: Engine, rendezvous: Rendezvous) -> None:
        self._engine: Final = engine
        self._rendezvous: Final = rendezvous
        self._service: Final = engine.backend
        self._record: Final = StoredRecord(
            engine, Folder.BARRIERS, rendezvous.name, Generations.parse
        )
        self._ticket: Ticket | None = None
        #: When it began to wait.
        self._started: float = engine.clock.now()
        #: How many were there when it was last seen, this one too.
        self._there = 1
        #: How many generations had passed when this one was last seen in the queue, not among
        #: them; None before it has looked.
        self._seen: int | None = None
        #: The life of the record in which that was; None for no record.
        self._life: str | None = None
        #: The ids of its own generation.
        self._generation: frozenset[str] = frozenset()

    def arrive(
        self, seconds: float | None, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        """Wait at the barrier until this one has passed; it is in the queue still then.

        None waits for ever, and 0 looks once. However it ends otherwise, the contender is
        withdrawn.
        """
        engine, name = self._engine, self._rendezvous.name
        self._started = started = engine.clock.now()
        announcement = Announcement(self._rendezvous.published)
        ticket = yield from acquisition(
            engine,
            {name: Mode.NL},
            seconds,
            cancellation=cancellation,
            announcement=announcement,
            kind=self._rendezvous.kind,
        )
        self._ticket = ticket
        try:
            left = None if seconds is None else seconds - (engine.clock.now() - started)
            left = engine.settings.request_timeout if seconds == 0 else left
            within = engine.until(left, cancellation)
            try:
                passing = self._passing(ticket, once=seconds == 0)
                self._generation = yield from bounded(passing, within)
            except Cancelled as cancelled:  # which is a DeadlineReached, too
                self._generation = yield from self._withdrawn(ticket)
                if not self._generation:
                    kind = self._rendezvous.kind
                    raise WaitCancelled(name, str(cancelled), kind=kind) from None
            except DeadlineReached:
                self._generation = yield from self._withdrawn(ticket)
                if not self._generation:
                    waited = engine.clock.now() - started
                    raise self._in_vain(waited, "was reached by", self._there) from None
            except (SessionLost, Evicted):
                self._generation = yield from self._withdrawn(ticket)
                if not self._generation:
                    raise
        except BaseException:
            ticket.withdraw()
            raise

    def leave(self) -> None:
        """Leave, in the background."""
        if self._ticket is not None:
            self._ticket.withdraw()

    def leave_together(
        self, seconds: float | None, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        """Leave, and wait until all that have passed together have left."""
        ticket, engine, name = self._ticket, self._engine, self._rendezvous.name
        assert ticket is not None
        lost, removal = ticket.lost, ticket.withdraw()
        if lost is not None:
            raise copy(lost)
        within = engine.deadline(engine.settings.request_timeout)
        try:
            was_there = yield from bounded(awaited(removal), within)
        except DeadlineReached as late:
            silent = engine.silent(late)
            raise self._unavailable(silent.service, silent.reason) from late.__cause__
        if not was_there:
            raise Evicted(name, kind=self._rendezvous.kind)

        def still(snapshot: Snapshot) -> int:
            return sum(contender.id in self._generation for contender in snapshot.contenders)

        yield from wait_until(
            engine,
            lambda news: self._service.follow(Queue(name), news),
            lambda snapshot: not still(snapshot),
            seconds,
            lambda last, waited: self._in_vain(waited, "was not left by", still(last)),
            self._rendezvous.kind,
            name,
            cancellation,
        )
        # A service that has lost its data has ended all sessions, and shows an empty queue.
        if (ended := ticket.session.ended) is not None:
            raise copy(ended)

    def _in_vain(self, waited: float, problem: str, there: int) -> WaitTimeout:
        barrier = self._rendezvous
        problem = f"{problem} {there} of {barrier.parties} parties"
        return WaitTimeout(barrier.name, waited, kind=barrier.kind, problem=problem)

    def _unavailable(self, service: str, reason: str) -> WaitUnavailable:
        barrier, waited = self._rendezvous, self._engine.clock.now() - self._started
        return WaitUnavailable(service, reason, barrier.name, waited, kind=barrier.kind)

    def _passing(self, ticket: Ticket, *, once: bool) -> Steps[frozenset[str]]:
        """Wait until this one has passed; with whom. Raises what ends the wait."""
        barrier, timers, helps = self._rendezvous, self._engine.timers, once
        news = Condition()
        observations: list[Observation[Any]] = []
        me = ticket.contenders[0]
        try:
            observations.append(queue := self._service.follow(Queue(barrier.name), news.notify))
            observations.append(record := self._record.follow(news.notify))
            while True:
                notified = news.notified
                ticket.check()
                for observation in observations:
                    if (ended := observation.view.ended) is not None:
                        raise copy(ended)
                snapshot, listing = queue.view.state, record.view.state
                if snapshot is not None and listing is not None:
                    generations = self._record.state_in(listing)
                    if generation := generations.of(me.id):
                        return generation
                    self._saw(generations)
                    first = barrier.first(me, snapshot, generations.passed)
                    self._there = len(first)
                    if barrier.takes(first, me):
                        if not helps and first[-1].id != me.id:
                            # All of them would write the same: the last one does it.
                            yield within(timers, notified, _HELP_DELAY_S)
                            helps = not notified.done()
                            continue
                        if generation := (yield from self._open(me)):
                            return generation
                    if once:
                        raise DeadlineReached
                helps = once
                yield ticket.unless_lost(notified)
        finally:
            for observation in observations:
                observation.cancel()

    def _saw(self, generations: Generations) -> None:
        """This one is in the queue, and not among ``generations``."""
        if generations.life != self._life:
            self._seen, self._life = None, generations.life
        self._seen = max(self._seen or 0, generations.last)

    def _open(self, me: Contender) -> Steps[frozenset[str] | None]:
        """Let the first in the queue pass, with ``me`` among them; None where they are too few."""
        engine, barrier, record = self._engine, self._rendezvous, self._record
        while True:
            generations = yield from record.read()
            if generation := generations.of(me.id):
                return generation
            snapshot = yield from retried(
                lambda: engine.backend.snapshot(barrier.name, owners=True), engine.timers
            )
            first = barrier.first(me, snapshot, generations.passed)
            if not barrier.takes(first, me):
                return None
            ids, queued = (
                [contender.id for contender in first],
                {contender.id for contender in snapshot.contenders},
            )
            try:
                if (yield from record.write(generations.after(ids, queued), first)):
                    return frozenset(ids)
            except Evicted:
                return None  # the queue's observation shows that

    def _withdrawn(self, ticket: Ticket) -> Steps[frozenset[str]]:
        """Withdraw, and find out with whom this one had passed; empty where it had not."""
        engine, me = self._engine, ticket.contenders[0].id
        within = engine.deadline(engine.settings.request_timeout)
        try:
            generations = yield from bounded(self._generations(ticket), within)
        except DeadlineReached as late:
            silent = engine.silent(late)
            reason = f"{silent.reason}; {self._rendezvous} may have been passed, or may be yet"
            raise self._unavailable(silent.service, reason) from late.__cause__
        generation = generations.of(me)
        if generation is None and self._life is not None and self._life != generations.life:
            reason = "was deleted meanwhile, so that it is unknown whether this party had passed"
            raise self._unavailable(str(engine.settings), f"{self._rendezvous} {reason}")
        if generation is None and generations.whole_from > (self._seen or 0) + 1:
            reason = "was passed so often meanwhile that it is unknown whether this party passed"
            raise self._unavailable(str(engine.settings), f"{self._rendezvous} {reason}")
        return generation or frozenset()

    def _generations(self, ticket: Ticket) -> Steps[Generations]:
        """Those in which this one had passed before its withdrawal, if any."""
        record, me = self._record, ticket.contenders[0].id
        if self._seen is None and ticket.lost is None:
            # While it is in the queue, the record lists it if it has passed. So only the
            # generations from this look on can be unknown, and not all there ever were.
            generations = yield from record.read()
            if generations.of(me):
                return generations
            if (yield ticket.withdraw()):  # else it may have been gone before the look
                self._saw(generations)
        yield ticket.withdraw()
        return (yield from record.read())


class BarrierRecipe(Recipe):
    """What barriers and double barriers share."""

    _instead = "pass its name and parties instead, and make another object with a client there"
    _needs = ("data", "publishing")
    _kind: ClassVar[str]

    def __init__(self, access: Access, name: str, parties: int) -> None:
        super().__init__(access, name)
        self._rendezvous: Final = Rendezvous(self.name, parties, self._kind)
        #: How many pass together. The same for all clients.
        self.parties: Final = parties
        self._size = f" of {parties}"

    def _participant(self) -> Participant:
        return Participant(self._access.engine, self._rendezvous)
