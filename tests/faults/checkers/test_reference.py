"""Histories that are right pass all checkers; one that was broken is caught, by the right ones."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest
from coordlock_faults.events import Reach
from coordlock_faults.history import History
from coordlock_faults.verdict import judge
from hypothesis import assume, given
from hypothesis import strategies as st

from coordlock.model.claim import Claim
from tests.faults.checkers.mutations import MUTATIONS, Impossible
from tests.faults.checkers.reference import BOUNDS, EXCLUSIVE, MODES, PERMITS, Reference

REACHES = [Reach.PAUSED, Reach.KILLED, Reach.NETWORK, Reach.SERVERS, Reach.OPERATOR]

references = st.builds(
    Reference,
    st.integers(0, 2**32),
    clients=st.integers(2, 6),
    rounds=st.integers(2, 12),
    locks=st.integers(1, 2),
    claims=st.sampled_from([EXCLUSIVE, MODES, PERMITS]),
    faults=st.lists(st.sampled_from(REACHES), max_size=6),
    truth=st.booleans(),
)


@given(references)
def test_histories_of_a_service_that_is_right_pass(reference: Reference) -> None:
    history = History(reference.run())
    assume(history.granted)
    verdict = judge(history, BOUNDS)
    assert verdict.holds, verdict


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_goes_wrong_is_caught_by_those_who_should(name: str) -> None:
    """With each mutation in many histories, and in each of them it must be found."""
    mutation = MUTATIONS[name]
    caught = 0
    for seed in range(1000):
        chance = random.Random(seed)
        reference = Reference(
            seed,
            clients=chance.randint(2, 5),
            rounds=chance.randint(3, 12),
            claims=chance.choice([EXCLUSIVE, MODES]),
            faults=chance.choices(REACHES, [3, 1, 1, 1, 1], k=chance.randint(0, 6)),
            truth=chance.random() < 0.8,
        )
        history = History(reference.run())
        if not history.granted:
            continue
        try:
            broken = History(mutation.change(history, chance))
        except Impossible:
            continue
        verdict = judge(broken, BOUNDS)
        found = {type(one).__name__ for one in verdict.all()}
        assert found & mutation.caught, f"seed {seed} survived"
        assert found <= mutation.caught | mutation.also, verdict
        assert str(verdict)
        caught += 1
        if caught == 10:
            break
    assert caught >= 10


@pytest.mark.parametrize("claims", [EXCLUSIVE, MODES, PERMITS])
def test_tens_of_thousands_of_events_take_seconds(claims: Sequence[Claim]) -> None:
    """An hour's worth are thirty times as many, and the time they take grows with their number."""
    faults = [one for one in REACHES if one is not Reach.KILLED] * 10
    reference = Reference(
        1, clients=20, rounds=300, locks=5, claims=claims, faults=faults, dwelling=0.0
    )
    events = reference.run()
    assert len(events) > 30_000
    began = time.process_time()
    history = History(events)
    verdict = judge(history, BOUNDS)
    took = time.process_time() - began
    assert verdict.holds, verdict
    assert len(history.granted) > 4_000
    assert took < 20
