from __future__ import annotations

import pytest
from coordlock_memory import VirtualTime, VirtualTimers

from coordlock.errors import BackendError, ClientClosed
from coordlock.kernel.recovery import Recovery
from coordlock.runtime.log import flush


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def recovery(time: VirtualTime) -> Recovery:
    return Recovery(VirtualTimers(time))


def test_all_pauses_end_when_the_service_answers(time: VirtualTime, recovery: Recovery) -> None:
    pauses = [recovery.pause(300) for _ in range(3)]
    assert not any(one.done() for one in pauses)
    recovery.service_answers()
    time.advance(0)
    assert all(one.done() for one in pauses)


def test_nothing_goes_on_in_the_thread_that_tells(time: VirtualTime, recovery: Recovery) -> None:
    pause = recovery.pause(300)
    recovery.service_answers()
    assert not pause.done()
    time.advance(0)
    assert pause.done()


def test_many_answers_wake_all_only_now_and_then(time: VirtualTime, recovery: Recovery) -> None:
    woken = 0
    for _ in range(100):
        pause = recovery.pause(300)
        for _ in range(10):
            recovery.service_answers()
        time.advance(0.01)
        woken += pause.done()
    assert 5 <= woken <= 11


def test_a_pause_ends_with_its_time(time: VirtualTime, recovery: Recovery) -> None:
    pause = recovery.pause(0.5)
    time.advance(0.4)
    assert not pause.done()
    time.advance(0.1)
    assert pause.done()


def test_the_first_of_those_who_pause_tries_again_soon(
    time: VirtualTime, recovery: Recovery
) -> None:
    first, second = recovery.pause(5), recovery.pause(5)
    time.advance(1)
    assert (first.done(), second.done()) == (True, False)
    again, third = recovery.pause(5), recovery.pause(5)
    time.advance(1)
    assert (again.done(), second.done(), third.done()) == (True, False, False)
    time.advance(3)
    assert second.done()


def test_a_pause_after_a_recovery_is_a_new_one(recovery: Recovery) -> None:
    recovery.service_answers()
    assert not recovery.pause(5).done()


def test_nobody_pauses_after_the_end(time: VirtualTime) -> None:
    timers = VirtualTimers(time)
    recovery = Recovery(timers)
    timers.close()
    with pytest.raises(ClientClosed):
        recovery.pause(5)
    recovery.service_answers()


def test_the_log_tells_a_refusal_once_and_then_counts(
    time: VirtualTime, recovery: Recovery, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        assert flush(30)
        messages = [one.getMessage() for one in caplog.records]
        caplog.clear()
        return messages

    for _ in range(50):
        recovery.refused("q", BackendError("etcd", "permission denied"))
    [first] = said()
    assert "could not withdraw from 'q'" in first
    time.advance(10)
    [count] = said()
    assert "49 more removals were refused" in count
    time.advance(60)
    assert said() == []
    recovery.refused("q", BackendError("etcd", "permission denied"))
    assert len(said()) == 1
