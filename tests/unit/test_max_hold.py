"""A cap on how long a lock may be held."""

from __future__ import annotations

import math

import pytest

import coordlock
from coordlock import GrantState, LockLost
from coordlock.kernel.tickets import _LOSS_GRACE_S as NOTICE
from coordlock.runtime import log
from coordlock.testing.waiting import eventually
from tests.simulation.world import TTL, World
from tests.unit.clients import Service

REASON = "it was held for 10 s, the limit set by max_hold or extend"


def test_a_grant_is_lost_at_the_end_and_the_next_one_granted_after_a_notice(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    party, other = world.party(), world.party()
    grant = party.held()
    party.engine.tickets.limit(grant._ticket, 10.0)
    waiting = other.acquire()
    world.advance(9.9)
    assert not grant.lost.is_set()
    assert grant.remaining() == pytest.approx(0.1)
    world.advance(0.1)
    assert grant.lost.reason is not None
    assert grant.lost.reason.startswith(REASON)
    assert grant.state is GrantState.LOST
    assert grant.remaining() == 0
    with pytest.raises(LockLost, match=REASON):
        grant.check()
    world.advance(NOTICE / 2)
    assert not waiting.done
    world.advance(NOTICE)
    assert waiting.result.contenders[0] == world.queue()[0]
    log.flush(10)
    assert caplog.text.count(REASON) == 1


def test_a_process_that_stood_still_past_the_end_finds_its_grant_lost(world: World) -> None:
    party = world.party()
    grant = party.held()
    party.engine.tickets.limit(grant._ticket, 5.0)
    party.pause()
    world.advance(6)
    assert grant.state is GrantState.LOST  # before any timer has run
    party.resume()
    world.advance(1)
    assert world.queue() == ()


def test_a_grant_that_is_released_or_lost_before_is_left_alone(world: World) -> None:
    party = world.party()
    released, lost = party.held("a"), party.held("b")
    for grant in (released, lost):
        party.engine.tickets.limit(grant._ticket, 10.0)
    party.run(released._release())
    world.service.remove(world.queue("b")[0])
    world.advance(60)
    assert released.state is GrantState.RELEASED
    assert "evicted" in str(lost.lost.reason)


def test_the_holder_extends_it(world: World) -> None:
    party = world.party()
    grant = party.held()
    with pytest.raises(ValueError, match="no max_hold"):
        grant.extend()
    party.engine.tickets.limit(grant._ticket, 10.0)
    world.advance(9)
    grant.extend()
    world.advance(9)
    grant.extend("1m")
    world.advance(59)
    grant.check()
    grant.extend(0.5)
    world.advance(0.6)
    with pytest.raises(LockLost, match=r"held for 0\.5 s"):
        grant.extend()
    assert grant.state is GrantState.LOST


def test_it_never_adds_to_the_time_to_live(world: World) -> None:
    party = world.party()
    grant = party.held()
    party.engine.tickets.limit(grant._ticket, 1000.0)
    assert grant.remaining() == pytest.approx(TTL)
    party.cut_off()
    world.advance(TTL)
    assert grant.state is GrantState.LOST


@pytest.mark.usefixtures("no_leaks")
def test_it_is_an_option_of_the_client_and_of_each_lock() -> None:
    with coordlock.connect("memory://max_hold?max_hold=0.2") as client:
        assert client.settings.max_hold == 0.2
        capped = client.lock("q").acquire()
        assert 0 < capped.remaining() <= 0.2
        with pytest.raises(LockLost, match=r"0\.2 s"), capped:
            assert capped.lost.wait(30)
        unlimited = client.lock("q", max_hold=None)
        assert unlimited.max_hold is None
        assert client.read_lock("q", max_hold="1h").max_hold == 3600
        assert client.semaphore("s", 2, max_hold=1).max_hold == 1
        with unlimited as grant:
            grant.extend(0.1)
            eventually(lambda: grant.state is GrantState.LOST)
            assert client.lock("q", timeout=30).acquire().release()
            with pytest.raises(LockLost):
                grant.check()
            grant._released = True  # what is to be shown was shown


def test_the_log_calls_what_was_held_for_too_long_by_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with coordlock.connect("memory://named?max_hold=0.1") as client:
        queue = client.work_queue("mails")
        queue.put(b"one")
        with pytest.raises(LockLost), queue.take(30) as item:
            assert item.lost.wait(30)
        with pytest.raises(LockLost), client.job("report").run(1) as run:
            assert run.lost.wait(30)
    log.flush(10)
    assert "item of work queue 'mails' (token" in caplog.text
    assert "job 'report' (token" in caplog.text


@pytest.mark.parametrize("given", [0, 0.05, -1, "soon", math.nan, 31 * 86_400, True])
def test_what_is_no_such_time_is_refused(service: Service, given: object) -> None:
    with service.client() as client:
        with pytest.raises(ValueError, match=r"max_hold: .* is not None or a duration from 0\.1s"):
            client.lock("q", max_hold=given)  # type: ignore[arg-type]
        with client.lock("q") as grant, pytest.raises(ValueError, match=r"a duration from 0\.1s"):
            grant.extend(given)  # type: ignore[arg-type]
