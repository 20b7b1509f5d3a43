"""Barriers on a bad network, with parties that stand still, and given up."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from coordlock import BackendUnavailable, Cancellation, Client
from coordlock.model.record import encode
from coordlock.recipes.shared.rendezvous import Generations
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service, backend

BOUND = 30.0


def waiting(pool: ThreadPoolExecutor, client: Client, parties: int) -> Future[None]:
    """A party in another thread."""
    return pool.submit(client.barrier("b", parties).wait, BOUND)


def test_a_party_that_cannot_reach_the_service_says_that_it_may_have_passed(
    service: Service,
) -> None:
    client, gives_up = service.client(request_timeout=0.2), Cancellation()
    with ThreadPoolExecutor(1) as pool:
        alone = pool.submit(client.barrier("b", 2).wait, None, cancellation=gives_up)
        eventually(lambda: service.size("b") == 1)
        backend(client).faults.partition()
        gives_up.cancel()
        with pytest.raises(BackendUnavailable, match="may have been passed, or may be yet"):
            alone.result(BOUND)
        backend(client).faults.heal()
    eventually(lambda: service.size("b") == 0)


# The record


def test_a_record_lists_the_last_generations_whole_and_who_is_queued_of_the_older_ones() -> None:
    generations = Generations()
    for number in range(1, 201):
        passing = [f"{number}a", f"{number}b"]
        queued = {"3b", *passing}
        generations = Generations.parse(generations.after(passing, queued))
        assert generations.last == number
        assert generations.of(f"{number}a") == frozenset(passing)
    assert generations.listed[3] == ["3b"]
    assert generations.of("3a") is None
    assert generations.whole_from == 200 - 128 + 1
    whole = range(generations.whole_from, 201)
    assert all(len(generations.listed[number]) == 2 for number in whole)
    assert len(generations.listed) == 129
    generations = Generations.parse(generations.after(["x"] * 100, ()))
    assert 3 not in generations.listed


def test_the_record_stays_small_with_a_hundred_parties() -> None:
    generations = Generations()
    for number in range(1, 50):
        fields = generations.after([f"{number:032x}"] * 100, ())
        generations = Generations.parse(fields)
    assert len(generations.listed) == 2
    assert len(encode(generations.after([f"{50:032x}"] * 100, ()))) < 20_000
