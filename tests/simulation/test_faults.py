"""The kernel among pauses, partitions, lost and late requests, expiries, evictions and quitters.

Hypothesis makes the faults up. What must hold is said in `Faulty.check` and `Faulty.get_over`.
"""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from coordlock.claim import Claim, Mode, Permit
from coordlock.contender import Contender
from coordlock.grant import Grant
from coordlock.ticket import Ticket
from tests.simulation.bad_day import HONEST, PARTIES, BadDay, delays, indices
from tests.simulation.world import TTL, Call, Party, believes

COMPATIBLE = {
    "NL": "NL CR CW PR PW EX",
    "CR": "NL CR CW PR PW",
    "CW": "NL CR CW",
    "PR": "NL CR PR",
    "PW": "NL CR",
    "EX": "NL",
}


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


class Faulty(BadDay):
    """Four processes that want the same lock, on a bad day."""

    claims: ClassVar[list[Claim]] = [Mode.EX]

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Party, Call[Ticket]]] = []
        self.grants: dict[Call[Ticket], tuple[Party, Grant]] = {}
        self.releases: dict[Grant, Call[bool]] = {}
        self.cancelled: set[Call[Ticket]] = set()
        self.tokens: list[int] = []

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

    def get_over(self) -> None:
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
