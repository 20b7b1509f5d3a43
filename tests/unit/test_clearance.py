"""Clearing a queue that others enter meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest

from coordlock.client import Client
from coordlock.client.admin import cleared
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner
from coordlock.model.queue_entry import QueueEntry
from coordlock.runtime.driver import Call
from coordlock.runtime.promise import Promise
from tests.unit.clients import Service, backend

pytestmark = pytest.mark.usefixtures("no_leaks")


def enter(client: Client, number: int) -> None:
    """Enqueue a contender of which nobody waits for the grant."""
    backend(client).enqueue([Entry("q", f"{number:032x}", Mode.EX, Owner("host", 1))]).result(30)


def clear(client: Client, meanwhile: Callable[[], None]) -> Sequence[QueueEntry]:
    """Clear the queue, and do something after each request."""
    steps = cleared(client._engine, "q")
    try:
        step = next(steps)
        while True:
            if isinstance(step, Promise):
                answer = step.result(30)
                meanwhile()
                step = steps.send(answer)
            else:
                step = steps.send(Call())
    except StopIteration as stop:
        evicted: Sequence[QueueEntry] = stop.value
        return evicted


def test_who_comes_while_the_queue_is_cleared_is_evicted_before_the_holder(
    service: Service, client: Client
) -> None:
    for number in range(3):
        enter(client, number)
    head = client.admin.contenders("q")[0].contender
    newcomers = iter(range(3, 8))

    def another_enters() -> None:
        queue = service.service.snapshot("q").contenders
        assert not queue or queue[0].key == head.key
        if queue and (number := next(newcomers, 0)):
            enter(client, number)

    evicted = clear(client, another_enters)
    assert service.size("q") == 0
    assert len(evicted) == 8


def test_a_crowd_that_never_stops_keeps_no_holder_in_place(
    service: Service, client: Client
) -> None:
    numbers = count()
    enter(client, next(numbers))
    [head] = client.admin.contenders("q")
    evicted = clear(client, lambda: enter(client, next(numbers)))
    queue = service.service.snapshot("q").contenders
    assert head.contender.key not in {one.key for one in queue}
    assert queue  # who came after the last look stays
    tokens = [one.token for one in evicted if one.token]
    assert tokens == sorted(tokens)
