"""A holder that is cut off or stopped at any moment stops believing before the next one starts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.world import World, believes

moments = st.floats(0, 12)
latencies = st.sampled_from([0.0, 0.01, 0.5, 2.0, 4.0])


@given(
    how=st.sampled_from(["cut off", "stopped", "both"]),
    moment=moments,
    ttl=st.sampled_from([3.0, 15.0]),
    holders=latencies,
    waiters=latencies,
    seed=st.integers(0, 10_000),
)
def test_the_old_holder_knows_of_its_loss_before_the_new_one_holds(
    how: str, moment: float, ttl: float, holders: float, waiters: float, seed: int
) -> None:
    world = World()
    holder, waiter = world.party(ttl), world.party(ttl)
    dice = random.Random(seed)
    # Heartbeats that take longer than they are apart lose the session, as they must.
    holder.network.faults.latency = lambda: dice.uniform(0, min(holders, ttl / 4))
    waiter.network.faults.latency = lambda: dice.uniform(0, min(waiters, ttl / 4))
    first = holder.acquire()
    world.advance(ttl)
    grant = holder.grant(first.result)
    second = waiter.acquire()
    world.advance(moment)
    assert believes(grant)
    if how != "stopped":
        holder.cut_off()
    if how != "cut off":
        holder.pause()
    gone = world.time.now()
    while not second.outcome.done():
        assert world.time.now() < gone + 4 * ttl
        world.advance(0.05)
    # The first look of a holder that has stood still, too.
    assert not believes(grant)
    assert second.result.session.ended is None
    # The next one had to wait for the time-to-live, and not for much longer.
    assert world.time.now() >= gone + ttl / 3
    assert world.time.now() <= gone + 3 * ttl


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 0.7]))
def test_a_holder_whose_network_is_slow_and_loses_some_keeps_its_lock(
    seed: int, losses: float
) -> None:
    """What a healthy session must survive: it is not lost for nothing."""
    world = World()
    party = world.party()
    dice = random.Random(seed)
    party.network.faults.latency = lambda: dice.uniform(0, 1.0)
    call = party.acquire()
    world.advance(10)
    grant = party.grant(call.result)
    for _ in range(60):
        if dice.random() < losses:
            party.cut_off()
            world.advance(dice.uniform(0, 3.0))
            party.heal()
        world.advance(dice.uniform(5.0, 10.0))
        assert believes(grant)
        assert len(world.queue()) == 1
