from __future__ import annotations

from contextlib import suppress

import pytest
from coordlock_memory import Fault

from coordlock.errors import (
    AcquireTimeout,
    BackendUnavailable,
    NameConflict,
    WaitUnavailable,
)
from coordlock.kernel.acquisition import acquisition, note_refusals
from coordlock.locks.grant import GrantState
from coordlock.model.claim import Claim, Mode, Permit
from coordlock.runtime.driver import Call, Steps, run
from tests.simulation.polling import TwoSteps
from tests.simulation.world import Party, World
from tests.unit.clients import Service
from tests.unit.kernel.parties import delay, release


def reads(party: Party) -> int:
    return party.network.requests.count("snapshot")


# The way through the queue


@pytest.mark.parametrize("is_held", [False, True])
def test_the_deadline_of_an_acquire_ends_with_it(is_held: bool) -> None:
    service = Service()
    engine = service.engine()
    if is_held:
        run(acquisition(service.engine(), {"q": Mode.EX}))

    def steps() -> Steps[bool]:
        outer = engine.deadline(60.0)
        call = yield Call
        call.deadline = outer
        with suppress(AcquireTimeout):
            yield from acquisition(engine, {"q": Mode.EX}, 0.1)
        return call.deadline is outer

    assert run(steps())


def test_the_second_in_line_is_granted_without_a_read(
    world: World, party: Party, other: Party
) -> None:
    grant = other.held()
    call = party.acquire()
    world.settle()
    release(grant)
    world.settle()
    assert call.result.contenders[0] == world.queue()[0]
    assert party.network.requests == ["open", "heartbeat", "enqueue"]


def test_a_waiter_gets_the_permit_of_whichever_holder_leaves_first(
    world: World, party: Party, other: Party
) -> None:
    leaving, call = other.held("q", Permit(2)), party.acquire("q", Permit(2))
    world.settle()
    assert call.done
    waiting = world.party().acquire("q", Permit(2))
    world.settle()
    assert not waiting.done
    release(leaving)
    world.settle()
    assert waiting.done


# Deadlines


def test_the_deadline_is_not_restarted_by_wake_ups(world: World, party: Party) -> None:
    calls = []
    for _ in range(8):
        ahead = world.party()
        calls.append(ahead.acquire())
        world.settle()
    start = world.time.now()
    call = party.acquire(timeout=5.0)
    for nearest in reversed(calls[1:]):
        world.advance(0.7)
        nearest.cancel()
    world.advance(0.2)
    assert reads(party) == 7 + 1  # and who is ahead, as the deadline is near
    assert world.time.now() - start > 5
    assert isinstance(call.error, AcquireTimeout)
    assert call.error.waited == pytest.approx(5.0)
    assert call.error.position == 1
    assert len(world.queue()) == 1


@pytest.mark.parametrize("claim", [Mode.EX, Mode.PR, Permit(2)], ids=str)
def test_a_timeout_tells_the_position_just_before_it_and_not_that_at_the_beginning(
    world: World, party: Party, claim: Claim
) -> None:
    ahead = [world.party().acquire("q", claim) for _ in range(5)]
    world.settle()
    if claim is Mode.PR:  # or it would not wait
        ahead.insert(2, world.party().acquire("q", Mode.EX))
        world.settle()
        ahead.insert(3, world.party().acquire("q", claim))
        world.settle()
    call = party.acquire("q", claim, timeout=5.0)
    world.advance(1)
    for leaving in ahead[:2]:
        leaving.result.withdraw() if leaving.done else leaving.cancel()
        world.settle()
    world.advance(4)
    assert isinstance(call.error, AcquireTimeout)
    assert call.error.position == len(world.queue())


def test_a_timeout_without_any_answer_says_so(world: World, party: Party) -> None:
    party.cut_off()
    call = party.acquire(timeout=3)
    world.advance(3)
    assert isinstance(call.error, WaitUnavailable)
    assert call.error.position is None
    assert isinstance(call.error.__cause__, BackendUnavailable)


def test_a_try_that_is_refused_sends_one_request_and_nothing_else(
    world: World, party: Party, other: Party
) -> None:
    held = other.held()
    before = len(party.network.requests)
    call = party.acquire(timeout=0)
    world.advance(100)
    error = call.error
    assert isinstance(error, AcquireTimeout)
    assert (error.position, str(error.holder)) == (1, str(held._ticket.contenders[0]))
    assert {*party.network.requests[before:]} <= {"enqueue", "open", "heartbeat"}
    assert party.network.requests[before:].count("enqueue") == 1
    assert not party.engine.tickets


def test_where_looking_costs_a_request_a_try_looks_once_it_was_refused(
    world: World, other: Party
) -> None:
    party = world.party(network=TwoSteps)
    party.held("x")
    held = other.held()

    def requests() -> list[str]:
        before = len(party.network.requests)
        call = party.acquire(timeout=0)
        world.settle()
        if not call.error:
            release(party.grant(call.result))
        asked = party.network.requests[before:]
        assert len(world.queue()) == (0 if held.state is GrantState.RELEASED else 1)
        return asked

    assert requests() == ["enqueue", "withdraw"]
    assert requests() == ["snapshot"]
    release(held)
    assert requests() == ["snapshot", "enqueue", "withdraw"]
    assert requests() == ["enqueue", "withdraw"]


def test_refusals_of_many_locks_are_forgotten_the_oldest_first(world: World, party: Party) -> None:
    note_refusals(party.engine, [f"q{number}" for number in range(2000)])
    assert "q0" not in party.engine.refusals
    assert {"q1500", "q1999"} < party.engine.refusals.keys()


def test_trying_once_waits_only_a_moment_for_the_removal(world: World, other: Party) -> None:
    party = world.party(network=TwoSteps)
    other.held()
    party.held("x")
    party.network.faults.inject("withdraw", Fault.LOSE_REQUEST, 20)
    call = party.acquire(timeout=0)
    world.advance(1)
    assert isinstance(call.error, AcquireTimeout)
    world.advance(600)
    assert len(world.queue()) == 1


def test_trying_once_a_silent_service_is_unavailable_in_time(world: World, party: Party) -> None:
    party.held("x")
    party.cut_off()
    call = party.acquire(timeout=0)
    world.advance(4.9)
    assert not call.done
    world.advance(0.1)
    assert isinstance(call.error, BackendUnavailable)
    seen: list[BaseException] = [call.error]
    while seen[-1].__cause__ is not None:
        seen.append(seen[-1].__cause__)
        assert len(set(map(id, seen))) == len(seen), "a cycle of causes"


def test_trying_once_says_busy_when_the_deadline_comes_during_the_removal(
    world: World, other: Party
) -> None:
    party = world.party(network=TwoSteps)
    other.held()
    party.held("x")
    delay(party, seconds=4.8)
    call = party.acquire(timeout=0)
    world.advance(5.0)
    assert isinstance(call.error, AcquireTimeout)


# Mismatches


def test_a_permit_behind_withdrawn_permits_is_not_granted_beside_an_exclusive_holder(
    world: World, other: Party
) -> None:
    parties = [world.party() for _ in range(3)]
    delay(*parties)
    other.held("q", Mode.EX)
    calls = [party.acquire("q", Permit(2)) for party in parties]
    world.advance(5)
    assert [type(call.error) for call in calls] == [NameConflict] * 3
    assert len(world.queue()) == 1


def test_an_exclusive_waiter_behind_withdrawn_ones_is_refused_on_a_semaphore(
    world: World, other: Party
) -> None:
    parties = [world.party() for _ in range(3)]
    delay(*parties)
    other.held("q", Permit(2))
    calls = [party.acquire("q", Mode.EX) for party in parties]
    world.advance(5)
    assert [type(call.error) for call in calls] == [NameConflict] * 3


@pytest.mark.parametrize("timeout", [0.1, 0.4, 3.0])
def test_a_timeout_comes_at_its_deadline_though_the_service_names_nobody_in_time(
    world: World, party: Party, other: Party, timeout: float
) -> None:
    other.held()
    party.held("x")
    delay(party, seconds=0.05)
    started = world.time.now()
    call = party.acquire(timeout=timeout)
    world.advance(0.06)
    delay(party, seconds=60.0)  # what is asked from now on is answered too late
    world.advance(timeout - 0.06)
    assert type(call.error) is (WaitUnavailable if timeout == 3.0 else AcquireTimeout)
    assert isinstance(call.error, AcquireTimeout | WaitUnavailable)
    assert call.error.position == 1
    assert call.error.waited == pytest.approx(timeout)
    assert world.time.now() == pytest.approx(started + timeout)


def test_who_is_ahead_is_asked_for_once_and_only_when_the_deadline_is_near(
    world: World, party: Party, other: Party
) -> None:
    other.held()
    party.held("x")
    call = party.acquire(timeout=10)
    world.advance(9.4)
    assert "snapshot" not in party.network.requests
    world.advance(1)
    assert party.network.requests.count("snapshot") == 1
    assert isinstance(call.error, AcquireTimeout)
