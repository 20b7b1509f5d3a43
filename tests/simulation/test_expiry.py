"""A holder keeps its lock through what a healthy session must survive."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.world import World, believes


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
