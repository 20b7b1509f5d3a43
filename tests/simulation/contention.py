"""Processes that want the same lock on a bad day, and what must hold whatever happens to them."""

from __future__ import annotations

import itertools
import random
from functools import partial
from typing import Any, ClassVar

from coordlock_memory import Fault
from hypothesis import strategies as st
from hypothesis.stateful import rule

from coordlock.backend import Departure
from coordlock.kernel.access import close
from coordlock.kernel.session import Session
from coordlock.kernel.ticket import Ticket
from coordlock.locks.grant import Grant, GrantState
from coordlock.model.claim import AnyClaim, Convertible, Mode, Permit
from coordlock.model.contender import Contender
from coordlock.runtime.deadline import Cancelled
from tests.simulation.bad_day import HONEST, PARTIES, BadDay, delays, indices
from tests.simulation.polling import TwoSteps
from tests.simulation.turns import Turns, may_hold_together
from tests.simulation.world import TTL, Call, Network, Party, believes

__all__ = ["KINDS", "Contention", "Informed", "Knowing", "trusts"]

#: Seconds that one who gives up may still wait for answers that are nice to have.
ANSWER_TIMEOUT_S = 1.1


class Contention(BadDay):
    """Four processes that want the same lock.

    After every single event: conflicting grants are not held together. Whoever is granted is so
    when its turn has come, with a token above all before. No session believes to live for longer
    than it does in the service, and whoever holds is told when it ends. Whose time is up, returns.

    In the end: everybody was answered, whoever believes to hold does, and nothing is left.
    """

    claims: ClassVar[list[AnyClaim]] = [Mode.EX]
    queues: ClassVar[list[str]] = ["q"]

    def __init__(self) -> None:
        super().__init__()
        self.turns = {queue: Turns() for queue in self.queues}
        self.waiting: list[tuple[Party, Call[Any]]] = []
        #: Grants whose end is not seen yet, and those that were not released, lost or not.
        self.held: list[tuple[Party, Grant]] = []
        #: Since when each session has ended without the news having reached its holders.
        self.untold: dict[Session, float] = {}
        self.unreleased: list[tuple[Party, Grant]] = []
        self.releases: dict[Grant, Call[bool]] = {}
        self.newest = dict.fromkeys(self.queues, 0)

    # What the processes do

    @rule(
        crowd=st.lists(indices, min_size=1, max_size=5),
        what=indices,
        timeout=st.sampled_from([None, None, None, None, 0.0, 30.0]),
        together=st.booleans(),
    )
    def acquire(self, crowd: list[int], what: int, timeout: float | None, together: bool) -> None:
        for number, who in enumerate(crowd):
            party = self.pick(who)
            if party.paused or len(self.waiting) > 12:
                continue
            self.waiting.append((party, self.ask(party, what + number, timeout)))
            if not together:
                self.world.settle()
        self.check()

    def ask(self, party: Party, what: int, timeout: float | None) -> Call[Any]:
        """Start to acquire; its result is a ticket, or the grant."""
        return party.acquire_all(self.wanted(what), timeout)

    def wanted(self, what: int) -> dict[str, AnyClaim]:
        """What one call asks for."""
        return {"q": self.claims[what % len(self.claims)]}

    @rule(which=indices, seconds=delays)
    def release(self, which: int, seconds: float) -> None:
        running = [pair for pair in self.unreleased if not pair[0].paused]
        if running:
            self.let_go(*running[which % len(running)])
            self.check()
        self.world.advance(seconds)

    @rule(which=indices, how=st.sampled_from(["cancel", "cancel", "from outside", "close"]))
    def give_up(self, which: int, how: str) -> None:
        waiting = [
            (party, call) for party, call in self.waiting if not call.done and not party.paused
        ]
        if waiting:
            party, call = waiting[which % len(waiting)]
            if how == "cancel":
                call.cancel()
            elif how == "from outside":
                call.cancel(Cancelled("by a Cancellation"))
            elif not party.engine.closed and len(self.world.parties) < PARTIES + 2:
                party.run(close(party.engine))
                self.world.party(TTL, network=self.network)
        self.check()

    @rule(which=indices)
    def look(self, which: int) -> None:
        """Somebody asks whether he still holds, perhaps before anything could tell him."""
        if self.held:
            party, grant = self.held[which % len(self.held)]
            party.resume()
            expected = trusts(grant)
            assert believes(grant) is expected, "a look at the clock would have told"

    @rule(
        which=indices,
        how=st.sampled_from(["first", "second", "session"]),
        seconds=st.sampled_from([0.0, 0.1, 0.3]),
        seed=indices,
    )
    def race(self, which: int, how: str, seconds: float, seed: int) -> None:
        """Somebody is removed at about the moment at which his turn comes, and news are slow."""
        queue = self.world.queue(self.queues[seed % len(self.queues)])
        if len(queue) > 1:
            dice = random.Random(seed)
            for party in self.world.parties:
                party.network.faults.latency = lambda: dice.uniform(0, 0.5)
            place = which % (len(queue) - 1)
            first, second = queue[place : place + 2]
            other = partial(self.remove, second)
            if how == "session":
                other = partial(self.expire, second.session)
            removals = [partial(self.remove, first), other]
            if how != "first":
                removals.reverse()
            for remove in removals:
                remove()
                self.check()
                self.world.advance(seconds)

    @rule(which=indices, fault=st.sampled_from([None, *Fault]), seed=indices)
    def part(self, which: int, fault: Fault | None, seed: int) -> None:
        """A holder releases at the moment at which its session ends, and news are slow."""
        running = [pair for pair in self.unreleased if not pair[0].paused]
        if running:
            party, grant = running[which % len(running)]
            dice = random.Random(seed)
            party.network.faults.latency = lambda: dice.uniform(0, 0.5)
            if fault is not None:
                party.network.faults.inject("withdraw", fault)
            self.let_go(party, grant)
            self.check()  # the next one's turn may have come, for no time at all
            self.expire(grant._ticket.session.id)
            self.check()

    def let_go(self, party: Party, grant: Grant) -> None:
        self.unreleased.remove((party, grant))
        self.releases[grant] = party.run(grant._release(None))

    # What must hold

    def check(self) -> None:
        """Called after every single event."""
        for queue, turns in self.turns.items():
            turns.look(self.world.queue(queue))
        self.check_answers()
        for session in self.sessions():
            self.check_deadline(session)
        self.held = [pair for pair in self.held if not is_over(pair[1])]
        for party, grant in self.held:
            self.check_signal(party, grant)
        # Who stands still does not know what he believes.
        running = [grant for party, grant in self.held if not party.paused and trusts(grant)]
        for queue in self.queues:
            claims = [
                grant.claim if isinstance(entry.claim, Convertible) else entry.claim
                for grant in running
                if grant._first_token not in self.removed
                for entry in grant._ticket.entries
                if entry.queue == queue
            ]
            assert may_hold_together(claims), "conflicting grants are held together"

    def check_answers(self) -> None:
        answered = [pair for pair in self.waiting if pair[1].done]
        if answered:
            self.waiting = [pair for pair in self.waiting if not pair[1].done]
        for party, call in answered:
            if call.error is None:
                result = call.result
                grant = party.grant(result) if isinstance(result, Ticket) else result
                self.welcome(party, grant)
            else:
                assert isinstance(call.error, HONEST), call.error
        now = self.world.time.now()
        for party, call in self.waiting:
            if call.due is not None and not party.paused:
                late = now - max(call.due, party.resumed)
                assert late <= ANSWER_TIMEOUT_S, f"its time was up {late:g} s ago"

    def welcome(self, party: Party, grant: Grant) -> None:
        """A new grant."""
        ticket = grant._ticket
        assert ticket.session.ended is None or party.engine.closed
        for entry, contender in zip(ticket.entries, ticket.contenders, strict=True):
            come = self.turns[entry.queue].has_come(contender)
            assert come, "granted, and its turn has not come"
        self.held.append((party, grant))
        self.unreleased.append((party, grant))
        if self.claims == [Mode.EX] and grant.token not in self.removed:
            for entry in ticket.entries:
                assert grant.token > self.newest[entry.queue]
                self.newest[entry.queue] = grant.token

    def sessions(self) -> list[Session]:
        found = (party.engine.sessions.latest for party in self.world.parties)
        return [one for one in found if one is not None and one._end is None]

    def check_deadline(self, session: Session) -> None:
        there = self.world.service._state.sessions.get(session.id)
        if there is not None:
            assert session.deadline <= there.deadline, "it believes to live for longer"

    def check_signal(self, party: Party, grant: Grant) -> None:
        session = grant._ticket.session
        now = self.world.time.now()
        lives = session._end is None and now <= max(session.deadline, party.resumed)
        if lives or party.paused:
            self.untold.pop(session, None)
        else:  # its timers tell, in the same moment
            since = self.untold.setdefault(session, now)
            assert since == now, "its holder was not told of the loss"

    def get_over(self) -> None:
        self.world.advance(20.0)
        for _, grant in self.held:
            for entry in grant._ticket.entries:
                there = {one.token for one in self.world.queue(entry.queue)}
                assert grant._first_token in there, "it was removed, and its holder was not told"
        for _ in range(30):
            for party, grant in list(self.unreleased):
                self.let_go(party, grant)
            if not self.waiting:
                break
            self.world.advance(20.0)
        assert not self.waiting, "somebody was never answered"
        self.world.advance(300.0)
        for grant, release in self.releases.items():
            assert release.done
            assert grant.state in (GrantState.RELEASED, GrantState.LOST)


def is_over(grant: Grant) -> bool:
    """Whether it was released, or its holder told of the loss."""
    return grant._ticket.end.done()


def trusts(grant: Grant) -> bool:
    """What `believes` must say, found without `Session.ended`, which ends what is over."""
    session = grant._ticket.session
    lives = session._end is None and session._timers.clock.now() < session.deadline
    return lives and not is_over(grant)


class Modes(Contention):
    """All modes at once."""

    claims: ClassVar[list[AnyClaim]] = list(Mode)


class Readers(Contention):
    """Shared and exclusive."""

    claims: ClassVar[list[AnyClaim]] = [Mode.PR, Mode.PR, Mode.EX]


class TwoPermits(Contention):
    """A semaphore."""

    claims: ClassVar[list[AnyClaim]] = [Permit(2)]


class Several(Contention):
    """Some of three locks at once, in any order.

    Besides: all places of a new grant stood at one moment at which it was their turn, and nobody
    waits who has lost a place.
    """

    queues: ClassVar[list[str]] = ["q", "r", "s"]
    #: In the order of their names, and in others.
    sets: ClassVar[list[str]] = ["qr", "rq", "qrs", "srq", "rs", "sq", "q", "r", "s"]

    def __init__(self) -> None:
        super().__init__()
        #: The tokens of those whose turn has come in all queues, while they stood in all.
        self.come: set[int] = set()

    def wanted(self, what: int) -> dict[str, AnyClaim]:
        names = self.sets[what % len(self.sets)]
        claims = (self.claims[(what // 7 + place) % len(self.claims)] for place in range(3))
        return dict(zip(names, claims, strict=False))

    def check_answers(self) -> None:
        standing = {
            queue: {one.id: one for one in self.world.queue(queue)} for queue in self.queues
        }
        for party in self.world.parties:
            for ticket in party.engine.tickets:
                # As the service knows them: the answer may be under way.
                found = [standing[entry.queue].get(entry.id) for entry in ticket.entries]
                pairs = zip(ticket.entries, found, strict=True)
                if all(one and self.turns[entry.queue].has_come(one) for entry, one in pairs):
                    self.come |= {one.order for one in found if one is not None}
        super().check_answers()

    def welcome(self, party: Party, grant: Grant) -> None:
        together = grant._ticket.contenders[0].order in self.come
        assert together, "granted, though a place was lost before its turn had come in all"
        super().welcome(party, grant)


class SeveralDoubts(Several):
    """Some of three locks at once, and one place is lost without the news, as others leave."""

    @rule(
        which=indices,
        fault=st.sampled_from([None, *Fault]),
        seconds=st.sampled_from([0.0, 0.1, 0.3]),
        seed=indices,
    )
    def doubt(self, which: int, fault: Fault | None, seconds: float, seed: int) -> None:
        """One who waits for several loses one place, as those before him leave; news are slow."""
        for number in range(4):
            party = self.pick(which + number)
            if not party.paused and len(self.waiting) <= 12:
                self.waiting.append((party, self.ask(party, seed + number, None)))
                self.world.settle()
        waiting = [
            (party, read, lost)
            for party in self.world.parties
            for ticket in party.engine.tickets
            for read, lost in itertools.permutations(ticket.contenders, 2)
            if not (ticket.granted_at or ticket.is_leaving or party.paused) and self.ahead(read)
        ]
        if waiting:
            party, read, lost = waiting[which % len(waiting)]
            dice = random.Random(seed)
            if fault is not None:
                party.network.faults.inject("snapshot", fault)
            *others, nearest = self.ahead(read)
            others += [lost, *self.ahead(lost)]
            dice.shuffle(others)
            for contender in (nearest, *others):
                delays = [3.0] if contender is lost else [0.0, 0.2]
                party.network.faults.latency = partial(dice.choice, delays)
                self.remove(contender)
                self.check()
                self.world.advance(seconds)
            party.network.faults.latency = partial(dice.choice, [0.0, 0.2])

    def ahead(self, me: Contender) -> list[Contender]:
        """Those that stand before ``me``, as the service knows them."""
        [queue] = [one for one in self.queues if me.key.startswith(f"{one}/")]
        return [one for one in self.world.queue(queue) if one.order < me.order]


class SeveralModes(Several):
    """Some of three locks at once, in all modes."""

    claims: ClassVar[list[AnyClaim]] = list(Mode)


class Tries(Contention):
    """Mostly those who try, at a service that reads the queue before they enqueue."""

    claims: ClassVar[list[AnyClaim]] = [Mode.PR, Mode.EX]
    network: ClassVar[type[Network]] = TwoSteps

    def ask(self, party: Party, what: int, timeout: float | None) -> Call[Any]:
        return super().ask(party, what, 0.0 if what % 4 else timeout)


class Knowing(Network):
    """A service that tells of each departure whether it was a holder's."""

    def known(self, contender: Contender, departure: Departure) -> Departure:
        return departure


class Informed(Contention):
    """Of all modes, and who learns of the end of a holder before it need not read."""

    claims: ClassVar[list[AnyClaim]] = [Mode.EX, *Mode]
    network: ClassVar[type[Network]] = Knowing


#: The kinds of locks.
KINDS: list[type[Contention]] = [
    Contention,
    Modes,
    Readers,
    TwoPermits,
    Several,
    SeveralDoubts,
    SeveralModes,
    Tries,
    Informed,
]
