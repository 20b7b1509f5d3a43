"""The kernel among pauses, partitions, lost and late requests, expiries, evictions and quitters.

Hypothesis makes the faults up. What must hold is said in `Faulty.check` and `Faulty.teardown`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import ClassVar

import pytest
from coordlock_memory import Fault, VirtualTime
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from coordlock.claim import Claim, Mode, Permit
from coordlock.contender import Contender
from coordlock.errors import (
    AcquireTimeout,
    BackendUnavailable,
    ClientClosed,
    Evicted,
    SessionLost,
)
from coordlock.grant import Grant
from coordlock.ticket import Ticket
from tests.simulation.world import TTL, Call, Party, World, believes

PARTIES = 4
COMPATIBLE = {
    "NL": "NL CR CW PR PW EX",
    "CR": "NL CR CW PR PW",
    "CW": "NL CR CW",
    "PR": "NL CR PR",
    "PW": "NL CR",
    "EX": "NL",
}
#: How an acquire may end without a grant.
HONEST = (
    AcquireTimeout,
    BackendUnavailable,
    SessionLost,
    Evicted,
    ClientClosed,
    asyncio.CancelledError,
)

indices = st.integers(0, 1000)
delays = st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.0, 3.0, 6.0, 14.0])


class WatchedTime(VirtualTime):
    """Virtual time with somebody who looks after every event."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self.look = look

    def step(self) -> bool:
        stepped = super().step()
        self.look()
        return stepped


class Complaints(logging.Handler):
    """Keeps what the kernel or a future complained of."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))


def may_hold_together(claims: list[Claim]) -> bool:
    """Whether these may be held at the same time, by the definitions alone."""
    for number, one in enumerate(claims):
        if isinstance(one, Permit):
            if len(claims) > one.of:
                return False
            continue
        for other in claims[number + 1 :]:
            assert isinstance(other, Mode)
            if other.name not in COMPATIBLE[one.name].split():
                return False
    return True


def may_enter(me: Contender, queue: tuple[Contender, ...]) -> bool:
    """Whether ``me`` may be granted while ``queue`` stands as it does in the service."""
    earlier = [one.claim for one in queue if one.order < me.order]
    if isinstance(me.claim, Permit):
        return len(earlier) < me.claim.of
    return all(may_hold_together([me.claim, one]) for one in earlier)


class Faulty(RuleBasedStateMachine):
    """Four processes that want the same lock, on a bad day."""

    claims: ClassVar[list[Claim]] = [Mode.EX]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(WatchedTime(self.check))
        self.calls: list[tuple[Party, Call[Ticket]]] = []
        self.grants: dict[Call[Ticket], tuple[Party, Grant]] = {}
        self.releases: dict[Grant, Call[bool]] = {}
        self.cancelled: set[Call[Ticket]] = set()
        #: Contenders that an operator removed: their owners cannot know before they are told.
        self.removed: set[int] = set()
        self.tokens: list[int] = []
        self.complaints = Complaints()
        for name in ("coordlock", "concurrent.futures"):
            logging.getLogger(name).addHandler(self.complaints)

    @initialize()
    def connect(self) -> None:
        for _ in range(PARTIES):
            self.world.party(TTL)

    # What the processes do

    @rule(
        crowd=st.lists(indices, min_size=1, max_size=5),
        what=indices,
        timeout=st.sampled_from([None, None, None, None, 0.0, 30.0]),
        together=st.booleans(),
    )
    def acquire(self, crowd: list[int], what: int, timeout: float | None, together: bool) -> None:
        for number, who in enumerate(crowd):
            party, claim = self.pick(who), self.claims[(what + number) % len(self.claims)]
            if party.paused or sum(not call.done for _, call in self.calls) > 12:
                continue
            once = timeout == 0
            call = party.acquire("q", claim, 5.0 if once else timeout, once=once)
            self.calls.append((party, call))
            if not together:
                self.world.settle()
        self.check()

    @rule(which=indices, seconds=delays)
    def release(self, which: int, seconds: float) -> None:
        grants = [
            (party, grant)
            for party, grant in self.grants.values()
            if grant not in self.releases and not party.paused
        ]
        if grants:
            party, grant = grants[which % len(grants)]
            self.releases[grant] = party.run(grant._release(None))
            self.check()
        self.world.advance(seconds)

    @rule(which=indices, how=st.sampled_from(["cancel", "cancel", "cancel", "close"]))
    def give_up(self, which: int, how: str) -> None:
        waiting = [
            (party, call) for party, call in self.calls if not call.done and not party.paused
        ]
        if waiting:
            party, call = waiting[which % len(waiting)]
            if how == "cancel":
                call.cancel()
            elif not party.link.closed and len(self.world.parties) < PARTIES + 2:
                party.run(party.link.close(), timeout=5.0)
                self.world.party(TTL)
        self.check()

    # What happens to them

    @rule(seconds=delays)
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(who=indices, seconds=st.sampled_from([0.1, 3.0, 10.0, 15.0, 20.0]), stay=st.booleans())
    def pause(self, who: int, seconds: float, stay: bool) -> None:
        party = self.pick(who)
        party.pause()
        if not stay:
            self.world.advance(seconds)
            party.resume()
        self.check()

    @rule()
    def resume(self) -> None:
        for party in self.world.parties:
            party.resume()
        self.check()

    @rule(who=indices, seconds=st.sampled_from([0.1, 3.0, 10.0, 15.0, 20.0]), stay=st.booleans())
    def cut_off(self, who: int, seconds: float, stay: bool) -> None:
        party = self.pick(who)
        if not party.link.closed:
            party.cut_off()
            if not stay:
                self.world.advance(seconds)
                party.heal()

    @rule()
    def heal(self) -> None:
        for party in self.world.parties:
            if not party.link.closed:
                party.heal()

    @rule(who=indices, longest=st.sampled_from([0.0, 0.05, 0.5, 4.0]), seed=indices)
    def slow_down(self, who: int, longest: float, seed: int) -> None:
        dice = random.Random(seed)
        self.pick(who).network.faults.latency = lambda: dice.uniform(0, longest)

    @rule(
        who=indices,
        method=st.sampled_from(["enqueue", "enqueue", "withdraw", "snapshot", "heartbeat", "open"]),
        fault=st.sampled_from(Fault),
        times=st.integers(1, 3),
    )
    def spoil(self, who: int, method: str, fault: Fault, times: int) -> None:
        self.pick(who).network.faults.inject(method, fault, times)

    @rule(which=indices, how=st.sampled_from(["evict", "evict", "expire"]))
    def interfere(self, which: int, how: str) -> None:
        queue = self.world.queue()
        if queue and which % 2:
            contender = queue[which % len(queue)]
            session = contender.session
            self.removed.add(contender.order)
            if how == "evict":
                self.world.service.remove(contender)
            else:
                self.removed |= {one.order for one in queue if one.session == session}
                self.world.service.expire(session)
            self.check()

    # What must hold

    def check(self) -> None:
        """Called after every single event."""
        for party, call in self.calls:
            if not call.done or call in self.grants or call in self.cancelled:
                continue
            if call.error is not None:
                assert isinstance(call.error, HONEST), call.error
                self.cancelled.add(call)
                continue
            self.welcome(party, call)
        held = [
            grant.claim
            for party, grant in self.grants.values()
            if not party.paused and grant.token not in self.removed and believes(grant)
        ]
        assert may_hold_together(held)

    def welcome(self, party: Party, call: Call[Ticket]) -> None:
        """A new grant."""
        ticket = call.result
        assert ticket.contender is not None
        grant = party.grant(ticket)
        self.grants[call] = party, grant
        assert ticket.session.ended is None or party.link.closed
        assert may_enter(ticket.contender, self.world.queue())
        if self.claims == [Mode.EX] and grant.token not in self.removed:
            assert all(grant.token > earlier for earlier in self.tokens)
            self.tokens.append(grant.token)

    def teardown(self) -> None:
        """The bad day ends: everybody is served, and nothing is left."""
        try:
            for party in self.world.parties:
                party.network.faults.latency = lambda: 0.01
                party.resume()
                if party.network.faults.partitioned:
                    party.network.faults.heal()
            for _ in range(60):
                self.world.advance(20.0)
                for party, grant in self.grants.values():
                    if grant not in self.releases:
                        self.releases[grant] = party.run(grant._release(None))
                if all(call.done for _, call in self.calls):
                    break
            self.world.advance(300.0)
            assert all(call.done for _, call in self.calls)
            for grant, release in self.releases.items():
                assert release.done
                assert not believes(grant)
            assert self.world.queue() == ()
            assert self.world.watches() == 0
            assert not any(party.link._tickets for party in self.world.parties)
            assert self.complaints.heard == []
        finally:
            for name in ("coordlock", "concurrent.futures"):
                logging.getLogger(name).removeHandler(self.complaints)

    def pick(self, who: int) -> Party:
        return self.world.parties[who % len(self.world.parties)]


class FaultyModes(Faulty):
    claims: ClassVar[list[Claim]] = list(Mode)


class FaultyReaders(Faulty):
    claims: ClassVar[list[Claim]] = [Mode.PR, Mode.PR, Mode.EX]


class FaultyPermits(Faulty):
    claims: ClassVar[list[Claim]] = [Permit(2)]


@pytest.mark.parametrize(
    "machine", [Faulty, FaultyModes, FaultyReaders, FaultyPermits], ids=lambda one: one.__name__
)
def test_no_fault_lets_conflicting_grants_overlap_or_a_contender_stay(
    machine: type[Faulty],
) -> None:
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=40))
