"""Clearing a queue that others enter meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from coordlock.clearance import Clearance
from coordlock.client import Client
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner
from coordlock.runtime.driver import run
from tests.unit.clients import Service, backend


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service, no_leaks: None) -> Iterator[Client]:
    with service.client() as client:
        yield client


def enter(client: Client, number: int) -> None:
    """Enqueue a contender of which nobody waits for the grant."""
    backend(client).enqueue(Entry("q", f"{number:032x}", Mode.EX, Owner("host", 1))).result(30)


def test_who_comes_while_the_queue_is_cleared_is_evicted_before_the_holder(
    service: Service, client: Client
) -> None:
    for number in range(3):
        enter(client, number)
    head = client.contenders("q")[0].contender
    newcomers = iter(range(3, 8))
    clearance = Clearance(client._link, "q")
    for steps in clearance:
        run(steps, client._link.clock)
        queue = service.service.snapshot("q").contenders
        assert not queue or queue[0].key == head.key
        if queue and (number := next(newcomers, 0)):
            enter(client, number)
    assert service.size("q") == 0
    assert len(clearance.evicted) == 8


def test_a_crowd_that_never_stops_keeps_no_holder_in_place(
    service: Service, client: Client
) -> None:
    numbers = count()
    enter(client, next(numbers))
    [head] = client.contenders("q")
    clearance = Clearance(client._link, "q")
    for steps in clearance:
        enter(client, next(numbers))
        run(steps, client._link.clock)
    queue = service.service.snapshot("q").contenders
    assert head.contender.key not in {one.key for one in queue}
    assert queue  # who came after the last look stays
    tokens = [one.token for one in clearance.evicted if one.token]
    assert tokens == sorted(tokens)
