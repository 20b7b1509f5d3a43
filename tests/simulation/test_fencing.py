"""Holders that go on without their lock: what they do to a register without a fence and with one.

The clients are careless: they never ask whether they still hold the lock. Hypothesis makes up
what happens to them, and to their requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from coordlock.model.claim import Claim, Mode
from coordlock.runtime.driver import Steps
from tests.simulation.bad_day import HONEST, BadDay, delays, indices, search
from tests.simulation.register import Fate, Register, Trip
from tests.simulation.world import TTL, Call, Party, World

trips = st.builds(
    Trip,
    st.sampled_from([0.0, 0.0, 0.01, 0.3, 3.0, 20.0]),
    st.sampled_from([Fate.FINE, Fate.FINE, Fate.FINE, Fate.FINE, *Fate]),
)


@dataclass(frozen=True)
class Job:
    """What one process does under the lock, and between what it pauses."""

    who: int
    claim: Claim
    pause: float
    trips: tuple[Trip, Trip]


jobs = st.builds(
    Job,
    who=indices,
    claim=st.sampled_from([Mode.EX, Mode.PW, Mode.PR, Mode.PR]),
    pause=st.sampled_from([0.0, 0.1, 3.0, 20.0]),
    trips=st.tuples(trips, trips),
)


class UpdateLost(AssertionError):
    """Somebody wrote over what he had not seen."""


class Fenced(BadDay):
    """Four processes that count in a register, and read it, under one lock."""

    fenced: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.register = Register(self.world, fenced=self.fenced)
        self.calls: list[Call[None]] = []

    @rule(crowd=st.lists(jobs, min_size=1, max_size=4), seconds=delays)
    def work(self, crowd: list[Job], seconds: float) -> None:
        for job in crowd:
            party = self.pick(job.who)
            if not party.paused and sum(not call.done for call in self.calls) < 10:
                self.calls.append(party.run(self.steps(party, job)))
        self.world.advance(seconds)

    def steps(self, party: Party, job: Job) -> Steps[None]:
        if job.claim is Mode.PR:
            return self.register.look_twice(party, job.pause, job.trips)
        return self.register.increment(party, job.claim, job.pause, job.trips)

    def check(self) -> None:
        """No accepted operation has an older token than one it conflicts with; nothing is lost.

        And whom the service has as a holder is never refused.
        """
        if self.register.lost:
            raise UpdateLost(self.register.lost)
        assert self.register.wrong == []

    def get_over(self) -> None:
        for _ in range(100):
            self.world.advance(20.0)
            if all(call.done for call in self.calls):
                break
        self.world.advance(300.0)  # late requests, too
        for call in self.calls:
            assert call.done
            assert call.error is None or isinstance(call.error, HONEST), call.error
        assert self.register.value == self.register.writes >= self.register.acknowledged
        self.check()


class Unfenced(Fenced):
    fenced = False

    def check(self) -> None:
        if self.register.lost:
            raise UpdateLost(self.register.lost)


def test_behind_a_fence_no_acknowledged_update_is_lost_and_no_holder_is_refused() -> None:
    run_state_machine_as_test(Fenced, settings=settings(stateful_step_count=40))


def test_the_same_bad_days_lose_updates_without_the_fence() -> None:
    """The proof that the test above can fail."""
    with pytest.raises(UpdateLost):
        search(Unfenced)


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("claim", [Mode.EX, Mode.PW], ids=lambda claim: claim.name)
def test_the_split_brain(fenced: bool, claim: Mode) -> None:
    """What ``coordlock demo split-brain`` shows with processes, in virtual time."""
    world = World()
    register = Register(world, fenced=fenced)
    trips = Trip(), Trip()
    a, b = world.party(), world.party()
    first = a.run(register.increment(a, claim, 1.0, trips))
    world.advance(0.5)
    a.pause()  # between its read and its write
    second = b.run(register.increment(b, claim, 1.0, trips))
    world.advance(TTL - 1)
    assert register.value == 0  # B waits
    world.advance(TTL)
    assert second.done
    assert register.value == 1
    a.resume()
    world.advance(1.0)
    assert first.done
    if fenced:
        assert (register.refused, register.acknowledged, register.value) == (1, 1, 1)
        assert register.lost == register.wrong == []
    else:
        assert (register.refused, register.acknowledged, register.value) == (0, 2, 1)
        assert len(register.lost) == 1


@pytest.mark.parametrize("fenced", [False, True])
def test_a_write_that_is_under_way_too_long_comes_after_the_next_holders_read(
    fenced: bool,
) -> None:
    """The holder is neither paused nor wrong: its request is. A fence that forgot reads is too."""
    world = World()
    register = Register(world, fenced=fenced)
    a, b = world.party(), world.party()
    late = Trip(2.0, Fate.LATE)
    first = a.run(register.increment(a, Mode.EX, 0.0, (Trip(), late)))
    world.advance(0.1)
    assert first.done  # it gave up, and the lock
    second = b.run(register.increment(b, Mode.EX, 5.0, (Trip(), Trip())))
    world.advance(10.0)
    assert second.done
    assert register.acknowledged == 1
    assert register.value == 1
    assert (register.lost == []) is fenced
