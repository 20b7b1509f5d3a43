from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from coordlock_memory import Fault

from coordlock import log
from coordlock.errors import (
    AcquireTimeout,
    AcquireUnavailable,
    BackendUnavailable,
    ClientClosed,
    Evicted,
    ForkedClient,
    QueueMismatch,
    SessionLost,
)
from coordlock.grant import Grant, GrantState
from coordlock.kernel.engine import _NOTICE as NOTICE
from coordlock.kernel.ticket import Stage
from coordlock.model.claim import Claim, Mode, Permit
from coordlock.model.contender import Contender
from coordlock.runtime.promise import resolved
from tests.simulation.world import TTL, Party, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def party(world: World) -> Party:
    return world.party()


@pytest.fixture
def other(world: World) -> Party:
    return world.party()


def release(grant: Grant) -> None:
    grant._ticket.withdraw()


def delay(*parties: Party, seconds: float = 0.01) -> None:
    for party in parties:
        party.network.faults.latency = lambda: seconds


def reads(party: Party) -> int:
    return party.network.requests.count("snapshot")


# The way through the queue


def test_a_free_lock_takes_one_request(world: World, party: Party) -> None:
    party.held("other")
    before = len(party.network.requests)
    party.held("q")
    assert party.network.requests[before:] == ["enqueue"]


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


@pytest.mark.parametrize("count", [3, 5])
def test_waiters_further_back_read_once_when_their_turn_is_near(
    world: World, other: Party, count: int
) -> None:
    grant = other.held()
    parties = [world.party() for _ in range(count)]
    calls = []
    for party in parties:
        calls.append(party.acquire())
        world.settle()
    while calls:
        release(grant)
        world.settle()
        first = calls.pop(0)
        grant = parties[count - len(calls) - 1].grant(first.result)
        assert not any(call.done for call in calls)
    assert [reads(party) for party in parties] == [0] + [1] * (count - 1)


def test_a_lock_goes_from_hand_to_hand_in_one_client_without_a_read(
    world: World, other: Party, party: Party
) -> None:
    grant = other.held()
    calls = []
    for _ in range(5):
        calls.append(party.acquire())
        world.settle()
    release(grant)
    world.settle()
    for call in calls:
        assert call.result.contenders[0] == world.queue()[0]
        release(party.grant(call.result))
        world.settle()
    assert reads(party) == 0


def test_a_predecessor_of_the_same_client_that_gives_up_proves_nothing(
    world: World, other: Party, party: Party
) -> None:
    other.held()
    impatient = party.acquire()
    world.settle()
    patient = party.acquire()
    world.settle()
    impatient.cancel()
    world.settle()
    assert not patient.done
    assert reads(party) == 1


def test_a_reader_that_goes_lets_no_writer_of_its_client_pass_the_writer_before(
    world: World, other: Party, party: Party
) -> None:
    other.held(claim=Mode.CR)
    reader = party.acquire(claim=Mode.PR)
    world.settle()
    writer = party.acquire(claim=Mode.EX)
    world.settle()
    release(party.grant(reader.result))
    world.settle()
    assert not writer.done


def test_a_release_wakes_one_waiter(world: World, other: Party) -> None:
    grant = other.held()
    parties = [world.party() for _ in range(20)]
    for party in parties:
        party.acquire()
        world.settle()
    asked = [len(party.network.requests) for party in parties]
    release(grant)
    world.settle()
    assert sum(len(p.network.requests) for p in parties) - sum(asked) == 0
    assert len([p for p in parties if p.engine._tickets]) == 20


def test_a_waiter_in_the_middle_that_leaves_wakes_only_the_next(world: World, other: Party) -> None:
    other.held()
    parties = [world.party() for _ in range(10)]
    calls = [party.acquire() for party in parties]
    world.settle()
    calls[4].cancel()
    world.settle()
    assert [reads(party) for party in parties] == [0] * 5 + [1] + [0] * 4
    assert [call.done for call in calls] == [False] * 4 + [True] + [False] * 5


def test_readers_stand_together_and_the_writer_after_them(world: World) -> None:
    parties = [world.party() for _ in range(4)]
    claims = [Mode.PR, Mode.PR, Mode.EX, Mode.PR]
    calls = [party.acquire("q", claim) for party, claim in zip(parties, claims, strict=True)]
    world.settle()
    assert [call.done for call in calls] == [True, True, False, False]
    for leaver, done in ((1, 2), (0, 3), (2, 4)):
        calls[leaver].result.withdraw()
        world.settle()
        assert [call.done for call in calls] == [True] * done + [False] * (4 - done)


def test_a_semaphore_admits_in_order_whoever_leaves_first(world: World) -> None:
    parties = [world.party() for _ in range(7)]
    calls = [party.acquire("q", Permit(3)) for party in parties]
    world.settle()
    for leaver in (1, 0, 2, 4, 3):
        admitted = sum(call.done for call in calls)
        calls[leaver].result.withdraw()
        world.settle()
        assert [call.done for call in calls] == [i < min(admitted + 1, 7) for i in range(7)]


def test_a_lock_in_a_mode_sees_a_conflict_beyond_its_window(world: World, party: Party) -> None:
    world.party().held("q", Mode.EX)
    for _ in range(20):
        world.party().acquire("q", Mode.NL)
    world.settle()
    call = party.acquire("q", Mode.PR)
    world.settle()
    assert not call.done


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


def test_a_timeout_tells_the_position_and_the_owner_ahead(
    world: World, party: Party, other: Party
) -> None:
    grant = other.held()
    world.party().acquire()
    world.settle()
    call = party.acquire(timeout=3)
    world.advance(3)
    assert isinstance(call.error, AcquireTimeout)
    assert call.error.position == 2
    assert call.error.holder is not None
    assert str(grant.token + 1) in call.error.holder
    assert len(world.queue()) == 2


def test_a_timeout_without_any_answer_says_so(world: World, party: Party) -> None:
    party.cut_off()
    call = party.acquire(timeout=3)
    world.advance(3)
    assert isinstance(call.error, AcquireTimeout)
    assert call.error.position is None
    assert isinstance(call.error.__cause__, BackendUnavailable)


def test_trying_once_a_busy_lock_leaves_the_queue(world: World, party: Party, other: Party) -> None:
    other.held()
    call = party.acquire(timeout=0)
    world.settle()
    assert isinstance(call.error, AcquireTimeout)
    assert len(world.queue()) == 1


def test_trying_once_waits_only_a_moment_for_the_removal(
    world: World, party: Party, other: Party
) -> None:
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


def test_a_silent_service_is_an_error_without_a_cycle_of_causes(world: World, party: Party) -> None:
    party.held("x")
    party.cut_off()
    call = party.acquire(timeout=0)
    world.advance(5)
    seen = [call.error]
    while seen[-1] is not None and seen[-1].__cause__ is not None:
        seen.append(seen[-1].__cause__)
        assert len(set(map(id, seen))) == len(seen)


def test_trying_once_says_busy_when_the_deadline_comes_during_the_removal(
    world: World, party: Party, other: Party
) -> None:
    other.held()
    party.held("x")
    delay(party, seconds=4.8)
    call = party.acquire(timeout=0)
    world.advance(5.0)
    assert isinstance(call.error, AcquireTimeout)


# Loss


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


def test_a_waiter_whose_session_ends_is_told(world: World, party: Party, other: Party) -> None:
    other.held()
    call = party.acquire()
    world.settle()
    world.service.expire(world.queue()[1].session)
    world.settle()
    assert isinstance(call.error, SessionLost)
    assert len(world.queue()) == 1


@pytest.mark.parametrize("times", [1, 5])
def test_a_waiter_whose_session_ends_queues_again_where_that_is_wanted(
    world: World, other: Party, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    party = world.party(requeue=True)
    holder = other.held()
    call, later = party.acquire(timeout=1000.0), other.acquire()
    world.settle()
    [session] = {one.session for one in world.queue()} - {holder._ticket.session.id}
    for _ in range(times):
        world.service.expire(session)
        world.advance(5)
        session = world.queue()[-1].session
    assert [one.session == session for one in world.queue()] == [False, False, True]
    release(holder)
    world.settle()
    release(other.grant(later.result))
    world.advance(5)
    assert call.result.stage is Stage.GRANTED
    log.flush(10)
    assert caplog.text.count("waiting goes on at the end of the queue") == times


def test_a_waiter_that_queues_again_keeps_its_deadline(world: World, other: Party) -> None:
    party = world.party(requeue=True)
    other.held()
    call = party.acquire(timeout=40.0)
    world.settle()
    party.cut_off()
    world.advance(30)
    assert not call.done
    party.heal()
    world.advance(11)
    assert isinstance(call.error, AcquireTimeout)
    assert len(world.queue()) == 1


def test_an_evicted_waiter_does_not_queue_again(world: World, other: Party) -> None:
    party = world.party(requeue=True)
    other.held()
    call = party.acquire()
    world.settle()
    world.service.remove(world.queue()[1])
    world.settle()
    world.advance(5)
    assert isinstance(call.error, Evicted)


def test_an_evicted_waiter_is_told(world: World, party: Party, other: Party) -> None:
    other.held()
    call = party.acquire()
    world.settle()
    world.service.remove(world.queue()[1])
    world.advance(1)
    assert isinstance(call.error, Evicted)
    assert party.engine.sessions._latest is not None
    assert party.engine.sessions._latest.ended is None


def test_a_contender_that_is_gone_when_the_queue_is_read_was_evicted(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    party.held("other")
    real = party.engine.backend.enqueue
    monkeypatch.setattr(
        party.engine.backend,
        "enqueue",
        lambda entry: resolved(replace(real(entry).result(0), contenders=())),
    )
    call = party.acquire()
    world.settle()
    assert isinstance(call.error, Evicted)
    assert world.queue() == ()


def test_a_waiter_whose_eviction_is_told_after_a_later_departure_is_not_granted(
    world: World, party: Party, other: Party
) -> None:
    grant = other.held()
    call = party.acquire()
    world.settle()
    # The news of its own end takes five seconds, all else almost nothing.
    delays = iter([5.0])
    party.network.faults.latency = lambda: next(delays, 0.01)
    world.service.remove(world.queue()[1])
    release(grant)
    world.advance(1)
    assert call.done
    assert isinstance(call.error, Evicted)


@pytest.mark.parametrize("fault", [Fault.LATE, Fault.LOSE_REQUEST])
def test_a_waiter_that_goes_at_once_with_a_holder_that_was_being_released_is_not_granted(
    world: World, party: Party, other: Party, fault: Fault
) -> None:
    """The end of the session removes both before the withdrawal does; the holder is told first."""
    grant = party.held()
    waiting = party.acquire()
    behind = other.acquire()
    world.settle()
    party.network.faults.inject("withdraw", fault)
    # The news of the session's end, of the holder's and of the waiter's; then answers.
    delays = iter([5.0, 0.0, 5.0])
    party.network.faults.latency = lambda: next(delays, 0.1)
    release(grant)
    world.service.expire(grant._ticket.session.id)
    world.advance(2)
    assert behind.done
    assert isinstance(waiting.error, SessionLost)


def test_a_waiter_is_not_granted_when_a_withdrawal_finds_that_others_have_removed_the_holder(
    world: World, party: Party
) -> None:
    grant = party.held()
    waiting = party.acquire()
    world.settle()
    delays = iter([5.0, 0.0, 5.0])
    party.network.faults.latency = lambda: next(delays, 0.1)
    world.service.expire(grant._ticket.session.id)
    release(grant)
    world.advance(2)
    assert isinstance(waiting.error, SessionLost)


def test_a_waiter_is_not_granted_when_what_went_was_a_late_twin_of_a_holder_that_was_released(
    world: World, party: Party
) -> None:
    party.run(party.engine.session())
    party.network.faults.inject("enqueue", Fault.LATE)
    holder = party.acquire()
    world.advance(0.5)
    grant = party.grant(holder.result)
    release(grant)
    world.advance(0.6)  # the first attempt takes effect, a second after it was sent
    [twin] = world.queue()
    waiting = party.acquire()
    world.settle()
    assert world.queue()[0] == twin
    assert len(world.queue()) == 2
    delays = iter([5.0, 0.0, 5.0])
    party.network.faults.latency = lambda: next(delays, 0.1)
    world.service.expire(twin.session)
    world.advance(2)
    assert isinstance(waiting.error, SessionLost)


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
        [ticket] = (one for one in party.engine._tickets.values() if one.entries[0].queue == "q")
        world.service.enqueue(mine.session, ticket.entries[0])
        return real(queue, upto, **how)

    monkeypatch.setattr(party.network, "snapshot", snapshot)
    reader = party.acquire(claim=Mode.PR)
    world.advance(5)
    assert isinstance(reader.error, Evicted)


def test_a_waiter_cut_off_past_its_time_to_live_is_told(
    world: World, party: Party, other: Party
) -> None:
    other.held()
    call = party.acquire()
    world.settle()
    party.cut_off()
    world.advance(TTL)
    assert isinstance(call.error, SessionLost)


def test_a_waiter_that_was_paused_past_its_time_to_live_is_not_granted(
    world: World, party: Party, other: Party
) -> None:
    delay(party)
    grant = other.held()
    call = party.acquire()
    world.advance(1)
    party.pause()
    release(grant)
    world.advance(2 * TTL)
    party.resume()
    world.advance(1)
    assert isinstance(call.error, SessionLost)


def test_a_contender_made_just_before_the_session_ended_is_not_granted(
    world: World, party: Party
) -> None:
    party.held("x")
    delay(party)
    call = party.acquire()
    party.pause()
    world.advance(2 * TTL)
    party.resume()
    world.advance(1)
    assert isinstance(call.error, SessionLost)


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
    closing = party.run(party.engine.close())
    world.advance(5)
    assert closing.done
    assert isinstance(call.error, ClientClosed)


def test_a_waiter_of_a_client_that_closes_is_told(world: World, party: Party, other: Party) -> None:
    other.held()
    call = party.acquire()
    world.settle()
    closing = party.run(party.engine.close())
    world.settle()
    assert closing.done
    assert isinstance(call.error, ClientClosed)
    assert len(world.queue()) == 1
    late = party.acquire()
    assert isinstance(late.error, ClientClosed)


def test_the_link_of_another_process_is_refused(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    party.held("x")
    monkeypatch.setattr("os.getpid", lambda: -1)
    call = party.acquire()
    assert isinstance(call.error, ForkedClient)


# Giving up


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.01, 0.015, 0.02, 0.5, 1.0])
def test_a_cancelled_waiter_leaves_the_queue(
    world: World, party: Party, other: Party, moment: float
) -> None:
    delay(other, party)
    grant_call = other.acquire()
    world.advance(1)
    call = party.acquire()
    world.advance(moment)
    call.cancel()
    world.advance(120)
    assert len(world.queue()) == 1
    assert grant_call.done
    assert world.watches() == 1  # the holder's own
    assert not party.engine._tickets


def test_a_failed_session_leaves_nothing_behind(world: World, party: Party) -> None:
    party.cut_off()
    call = party.acquire()
    world.advance(1)
    call.cancel()
    party.heal()
    world.advance(120)
    assert world.queue() == ()


# Mismatches


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (Mode.EX, Permit(2)),
        (Mode.NL, Permit(2)),
        (Permit(2), Mode.EX),
        (Permit(2), Mode.NL),
        (Permit(2), Permit(3)),
    ],
    ids=str,
)
def test_a_queue_of_another_kind_is_refused_and_left(
    world: World, party: Party, other: Party, held: Claim, wanted: Claim
) -> None:
    other.held("q", held)
    call = party.acquire("q", wanted)
    world.settle()
    error = call.error
    assert isinstance(error, QueueMismatch)
    assert (error.wanted, error.found) == (str(wanted), str(held))
    assert len(world.queue()) == 1


def test_a_permit_behind_withdrawn_permits_is_not_granted_beside_an_exclusive_holder(
    world: World, other: Party
) -> None:
    parties = [world.party() for _ in range(3)]
    delay(*parties)
    other.held("q", Mode.EX)
    calls = [party.acquire("q", Permit(2)) for party in parties]
    world.advance(5)
    assert [type(call.error) for call in calls] == [QueueMismatch] * 3
    assert len(world.queue()) == 1


def test_an_exclusive_waiter_behind_withdrawn_ones_is_refused_on_a_semaphore(
    world: World, other: Party
) -> None:
    parties = [world.party() for _ in range(3)]
    delay(*parties)
    other.held("q", Permit(2))
    calls = [party.acquire("q", Mode.EX) for party in parties]
    world.advance(5)
    assert [type(call.error) for call in calls] == [QueueMismatch] * 3


@pytest.mark.parametrize("spoil", ["withdraw", "expire"])
def test_who_holds_a_lock_and_goes_lets_the_next_in(
    world: World, party: Party, other: Party, spoil: str
) -> None:
    grant = other.held()
    call = party.acquire()
    world.settle()
    actions: dict[str, Callable[[], object]] = {
        "withdraw": lambda: release(grant),
        "expire": lambda: world.service.expire(world.queue()[0].session),
    }
    actions[spoil]()
    world.settle()
    assert call.result.contenders[0] == world.queue()[0]


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
    assert not party.engine._tickets


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
    assert again.result.session is party.engine.sessions._latest


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
    assert type(call.error) is (AcquireUnavailable if timeout == 3.0 else AcquireTimeout)
    assert isinstance(call.error, AcquireTimeout)
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
