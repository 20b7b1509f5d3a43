"""The live session: in which order its callers are answered, and what goes wrong on the way."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from coordlock import GrantState, connect
from coordlock.errors import CoordlockError
from coordlock.runtime import log
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.driver import run_in_background
from coordlock.testing.waiting import eventually
from tests.simulation.world import World


@pytest.mark.parametrize("first", [True, False], ids=["the first session", "another one"])
def test_callers_that_wait_for_a_session_are_answered_first_come_first_served(
    world: World, first: bool
) -> None:
    party = world.party()
    if not first:
        party.held()
    party.cut_off()
    world.advance(0 if first else 60)
    calls = [party.acquire(f"q{number}") for number in range(8)]
    world.advance(1)
    assert not any(call.done for call in calls)
    party.heal()
    world.advance(9)
    orders = [call.result.contenders[0].order for call in calls]
    assert orders == sorted(orders)


def test_two_threads_that_answer_callers_for_a_session_lose_none_that_comes_between(
    world: World,
) -> None:
    sessions = world.party().engine.sessions
    callers = []

    def interleave(_: object) -> None:
        sessions._answer(None)  # the other thread, after the first has answered
        callers.append(run_in_background(sessions.live()))

    sessions._opened.add_done_callback(interleave)
    sessions._answer(None)
    world.advance(1)
    assert callers[0].done()


@pytest.mark.parametrize("first", [True, False], ids=["the first session", "another one"])
def test_callers_that_give_up_are_forgotten(world: World, first: bool) -> None:
    party = world.party()
    if not first:
        party.held()
    party.cut_off()
    world.advance(60)
    calls = [party.acquire(timeout=1.0) for _ in range(20)]
    world.advance(20)
    assert all(isinstance(call.error, CoordlockError) for call in calls)
    assert party.engine.sessions._opened._callbacks == []


def test_a_loss_is_told_and_another_session_opened_where_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_leaks: None
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with connect(f"local://{tmp_path}/state?request_timeout=30s") as client:
        grant = client.lock("q").acquire()
        timers = client._engine.timers
        assert isinstance(timers, SystemTimers)
        sweep = client._engine.tickets._timer
        assert sweep is not None
        sweep.cancel()
        eventually(lambda: timers._thread is None)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            os.unlink(tmp_path / "state" / "sessions" / client.admin.contenders("q")[0].session)
            eventually(lambda: grant.state is GrantState.LOST)
            client.lock("q").acquire(0).check()


def test_an_attempt_that_comes_too_late_is_not_logged_as_the_loss_of_a_session(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    party = world.party()
    party.held()
    party.cut_off()
    world.advance(100)
    party.acquire("other")
    world.advance(200)
    party.heal()
    world.advance(60)
    log.flush(10)
    assert "no session was open in" in caplog.text
    assert caplog.text.count(" is open") == 1
    assert caplog.text.count("; it had ") == 1
