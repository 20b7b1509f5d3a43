"""What an acquire does when sessions end, contenders go, and services fall silent."""

from __future__ import annotations

from typing import Any

import pytest
from coordlock_memory import Fault

from coordlock.errors import ClientClosed, Evicted, SessionLost
from coordlock.kernel.access import close
from coordlock.kernel.tickets import _LOSS_GRACE_S as NOTICE
from coordlock.locks.grant import GrantState
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender
from tests.simulation.world import TTL, Party, World


def test_a_session_lost_before_the_contender_stands_is_replaced(world: World, party: Party) -> None:
    party.held("x")
    party.network.faults.inject("enqueue", Fault.LOSE_REQUEST, 1)
    call = party.acquire()
    world.service.expire(world.service.sessions()[0])
    world.advance(5)
    assert call.result.session.ended is None
    assert len(world.queue()) == 1
    assert party.network.requests.count("open") == 2


def test_a_session_that_the_request_finds_gone_is_replaced(world: World, party: Party) -> None:
    party.held("x")
    session = world.service.sessions()[0]
    # The service has forgotten the session, and the client has not heard of it.
    world.service.close(session)
    call = party.acquire()
    world.advance(60)
    assert call.result.session.ended is None
    assert len(world.queue()) == 1


def test_one_heartbeat_tells_many_evicted_waiters_that_their_session_lives(
    world: World, party: Party, other: Party
) -> None:
    other.held()
    calls = [party.acquire() for _ in range(100)]
    world.settle()
    before = party.network.requests.count("heartbeat")
    for contender in world.queue()[1:]:
        world.service.remove(contender)
    world.advance(1)
    assert {type(call.error) for call in calls} == {Evicted}
    assert party.network.requests.count("heartbeat") - before == 1


def test_a_late_twin_that_the_whole_queue_shows_is_not_taken_for_an_evicted_contender(
    world: World, party: Party, other: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More readers stand before it than an answer lists, so it reads the whole queue."""
    party.held("other")
    for _ in range(9):
        other.held(claim=Mode.PR)
    real = party.network.snapshot

    def snapshot(queue: str, upto: Contender | None = None, **how: bool) -> Any:
        monkeypatch.undo()
        mine = world.queue()[-1]
        other.acquire(claim=Mode.EX)
        world.service.remove(mine)
        [ticket] = (one for one in party.engine.tickets if one.entries[0].queue == "q")
        world.service.enqueue(mine.session, ticket.entries)
        return real(queue, upto, **how)

    monkeypatch.setattr(party.network, "snapshot", snapshot)
    reader = party.acquire(claim=Mode.PR)
    world.advance(5)
    assert isinstance(reader.error, Evicted)


def test_acquiring_after_a_pause_past_the_time_to_live_opens_a_new_session(
    world: World, party: Party
) -> None:
    party.held("x")
    # The clock has passed the deadline, and the process acquires before a timer is served.
    party.cut_off()
    party.timers.pause()
    world.advance(2 * TTL)
    party.heal()
    call = party.acquire()
    party.timers.resume()
    world.advance(5)
    assert call.result.session.ended is None
    assert len(world.queue()) == 1


def test_an_entry_that_is_never_answered_ends_with_the_session(world: World, party: Party) -> None:
    party.held("x")
    party.cut_off()
    call = party.acquire()
    world.advance(TTL)
    # It never stood in the queue: a new session is asked for, and got when that is possible.
    assert not call.done
    party.heal()
    world.advance(5)
    assert call.result.session.ended is None
    assert len(world.queue()) == 1


def test_a_read_that_is_never_answered_ends_with_the_session(world: World, party: Party) -> None:
    ahead = [world.party().acquire() for _ in range(2)]
    call = party.acquire()
    world.settle()
    party.network.faults.latency = lambda: 1.0
    ahead[1].cancel()
    world.advance(0.5)
    party.network.faults.latency = lambda: 1000.0
    world.advance(0.5)
    assert party.network.requests[-1] == "snapshot"
    world.advance(TTL)
    assert isinstance(call.error, SessionLost)


def test_a_request_that_is_never_answered_ends_when_the_client_closes(
    world: World, party: Party
) -> None:
    party.held("x")
    party.cut_off()
    call = party.acquire()
    closing = party.run(close(party.engine))
    world.advance(5)
    assert closing.done
    assert isinstance(call.error, ClientClosed)


def test_a_lock_that_was_lost_at_its_deadline_is_free_though_the_session_lives_on(
    world: World, party: Party, other: Party
) -> None:
    grant = party.held()
    session = world.queue()[0].session
    call = other.acquire()
    world.settle()
    party.cut_off()
    for _ in range(3):
        world.advance(TTL / 2)
        world.service.heartbeat(session)  # as if the client's own had arrived, unanswered
    assert grant.state is GrantState.LOST
    assert not call.done
    party.heal()
    world.advance(1)
    assert world.service.heartbeat(session)
    assert call.result.contenders[0] == world.queue()[0]
    assert not party.engine.tickets


def test_a_lock_that_was_lost_on_a_look_at_the_clock_is_given_up_by_another_thread(
    world: World, party: Party
) -> None:
    grant = party.held()
    session = world.queue()[0].session
    party.timers.pause()
    for _ in range(3):
        world.advance(TTL / 2)
        world.service.heartbeat(session)
    assert grant.state is GrantState.LOST
    assert "withdraw" not in party.network.requests
    party.timers.resume()
    world.advance(NOTICE)
    assert world.queue() == ()


def lost_while_connected(world: World, party: Party) -> None:
    """Let the session of ``party`` end at its deadline, though every request arrives."""
    party.network.faults.inject("heartbeat", Fault.LOSE_REPLY, 1000)
    world.advance(TTL)
    party.network.faults._next.clear()


def test_who_holds_is_told_of_the_loss_a_moment_before_the_next_one_is_granted(
    world: World, party: Party, other: Party
) -> None:
    grant = party.held()
    call = other.acquire()
    lost_while_connected(world, party)
    assert grant.lost.is_set()
    world.advance(NOTICE * 0.9)
    assert not call.done
    world.advance(NOTICE * 0.1)
    assert call.result.contenders[0] == world.queue()[0]


def test_no_session_is_opened_before_what_was_held_in_the_last_one_may_go(
    world: World, party: Party, other: Party
) -> None:
    """The service forgets the last one with all that was held in it when another is opened."""
    party.held()
    waiting = other.acquire()
    lost_while_connected(world, party)
    again = party.acquire("another")
    world.advance(NOTICE * 0.9)
    assert party.network.requests.count("open") == 1
    assert not waiting.done
    world.advance(NOTICE * 0.1)
    assert again.result.contenders[0] == world.queue("another")[0]
    assert waiting.result.contenders[0] == world.queue()[0]


def test_an_opening_goes_on_for_others_when_its_first_caller_gives_up(
    world: World, party: Party
) -> None:
    party.held()
    lost_while_connected(world, party)
    first, again = party.acquire("first"), party.acquire("another")
    first.throw(KeyboardInterrupt())
    world.advance(NOTICE)
    assert isinstance(first.error, KeyboardInterrupt)
    assert party.network.requests.count("open") == 2
    assert again.result.session is party.engine.sessions.latest


@pytest.mark.parametrize("unanswered", [0, 1000])
def test_who_holds_nothing_opens_another_session_at_once(
    world: World, party: Party, other: Party, unanswered: int
) -> None:
    """Whoever has released needs no notice, though the service may not know yet."""
    other.held()
    released = party.held("another")
    party.network.faults.inject("withdraw", Fault.LOSE_REQUEST, unanswered)
    released._ticket.withdraw()
    party.acquire()
    world.settle()
    lost_while_connected(world, party)
    again = party.acquire()
    world.settle()
    assert again.done is False
    assert world.queue()[-1].session != world.queue()[0].session
    assert party.network.requests.count("open") == 2
