"""Giving up in a deadlock, when something else comes at the same time."""

from __future__ import annotations

import pytest

from coordlock.errors import DeadlockDetected
from tests.simulation.world import Party, World

ERROR = DeadlockDetected("q", ("one", "another"))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def party(world: World) -> Party:
    return world.party()


def test_a_wait_is_given_up_and_leaves_the_queue(world: World, party: Party) -> None:
    holder = world.party().held()
    call = party.acquire()
    world.settle()
    (ticket,) = party.engine._tickets.values()
    ticket.give_up(ERROR)
    world.settle()
    assert isinstance(call.error, DeadlockDetected)
    assert [one.token for one in world.queue()] == [holder.token]


def test_what_was_granted_is_not_given_up(world: World, party: Party) -> None:
    grant = party.held()
    grant._ticket.give_up(ERROR)
    world.settle()
    grant.check()
    assert len(world.queue()) == 1


def test_what_leaves_is_not_given_up(world: World, party: Party) -> None:
    grant = party.held()
    grant._ticket.withdraw()
    grant._ticket.give_up(ERROR)
    world.settle()
    assert grant._ticket.end.result(0) is None
