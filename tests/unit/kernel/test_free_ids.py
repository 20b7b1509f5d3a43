"""Ids that come back, where a service gets slower with each name: none is another ticket's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from coordlock_memory import Fault

from coordlock.kernel.ticket import Ticket
from coordlock.locks.grant import GrantState
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry
from coordlock.runtime.promise import Promise
from tests.simulation.world import Call, Party, World
from tests.unit.signals import interrupted

pytestmark = pytest.mark.usefixtures("generators_end_unheard")


@pytest.fixture
def party(world: World) -> Party:
    return world.party()


def acquired(party: Party, *queues: str) -> Ticket:
    call = party.acquire_all(dict.fromkeys(queues or ("q",), Mode.EX))
    party.world.settle()
    return call.result


def ids(*tickets: Ticket) -> set[str]:
    return {entry.id for one in tickets for entry in one.entries}


def test_who_comes_next_has_the_id_of_who_was_removed(world: World, party: Party) -> None:
    for queues in (["q"], ["q", "r"]):
        first = acquired(party, *queues)
        first.withdraw()
        world.settle()
        second = acquired(party, *queues)
        assert ids(first) == ids(second)
        assert first.contenders != second.contenders
        second.withdraw()
        world.settle()


def test_a_try_that_was_refused_has_used_no_id_up(world: World, party: Party) -> None:
    held = acquired(world.party())
    tries = []
    for _ in range(3):
        party.acquire(timeout=0)
        world.settle()
        tries += party.engine._entries._free
    assert len(set(tries)) == 1
    held.withdraw()


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
@pytest.mark.parametrize("request_", ["enqueue", "withdraw"])
def test_no_id_is_used_again_after_a_fault(
    world: World, party: Party, request_: str, fault: Fault
) -> None:
    party.network.faults.inject(request_, fault)
    call = party.acquire()
    world.advance(5)
    call.result.withdraw()
    world.advance(200)
    assert party.engine._entries._free == []


def test_who_comes_as_an_id_becomes_free_is_known(world: World, party: Party) -> None:
    """Another thread may take it before the withdrawal has ended."""
    first = acquired(party)
    free, calls = party.engine._entries.free, list[Call[Ticket]]()

    def freed(entries: Sequence[Entry]) -> None:
        free(entries)
        calls.append(party.acquire())

    first._on_free = freed
    first.withdraw()
    world.settle()
    second = calls[0].result
    assert ids(first) == ids(second)
    assert party.engine.tickets.own(second.contenders[0]) is second
    assert party.engine.tickets.held("q") == [second]


@pytest.mark.parametrize("queues", [["q"], ["q", "r"]], ids=["one", "set"])
def test_wherever_ctrl_c_strikes_a_release_the_next_one_of_its_id_stays(queues: list[str]) -> None:
    number, came = 1, True
    while came:
        world = World()
        party = world.party()
        first = acquired(party, *queues)
        came = interrupted(first.withdraw, number)
        first.withdraw()
        call = party.acquire()
        world.advance(200)
        second = call.result
        assert party.engine.tickets.own(second.contenders[0]) is second, number
        assert world.queue() == second.contenders, number
        free = party.engine._entries._free
        assert len(free) == len(set(free) - ids(second)), number
        assert len(party.engine.tickets) == 1, number
        number += 1
    assert number > 50


def test_a_removal_that_ctrl_c_has_struck_frees_no_id_that_is_removed_again(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = acquired(party)
    withdraw, asked = party.network.withdraw, list[tuple[Sequence[Entry], Promise[bool]]]()

    def ask(entries: Sequence[Entry]) -> Promise[bool]:
        asked.append((entries, promise := Promise[bool]()))
        if len(asked) == 1:
            raise KeyboardInterrupt
        return promise

    def arrive(number: int) -> None:
        entries, promise = asked[number]
        withdraw(entries).add_done_callback(promise.follow)
        world.settle()

    with monkeypatch.context() as patched:
        patched.setattr(party.network, "withdraw", ask)
        with pytest.raises(KeyboardInterrupt):
            first.withdraw()
        first.sweep()
    arrive(1)
    assert first.withdrawn.done()
    grant = party.grant(acquired(party))
    other = world.party().acquire()
    arrive(0)
    assert grant.state is GrantState.HELD
    assert not other.done


def test_a_request_that_is_being_sent_after_a_refusal_leaves_nothing_behind(
    world: World, party: Party
) -> None:
    """A client asks a service without order again and again: see `coordlock.kernel.polling`."""
    held = acquired(world.party())
    session = party.run(party.engine.session())
    world.settle()
    ticket = party.engine.ticket(session.result, {"q": Mode.EX})
    party.run(ticket.enqueue(unless_blocked=True))
    world.settle()
    held.withdraw()
    world.settle()
    send, backend = party.network.enqueue, party.network

    def interrupted_send(*arguments: Any, **options: Any) -> Any:
        ticket.withdraw()  # by another thread, which closes the client
        return send(*arguments, **options)

    backend.enqueue = interrupted_send  # type: ignore[method-assign]
    party.run(ticket.enqueue(unless_blocked=True))
    world.advance(200)
    assert world.queue() == ()
