from __future__ import annotations

import sys
import threading
from functools import partial

import pytest
from coordlock_memory import MemoryBackend, MemoryService, VirtualTime, VirtualTimers
from hypothesis import given
from hypothesis import strategies as st

import coordlock
from coordlock.backend import Queue
from coordlock.errors import BackendUnavailable
from coordlock.testing.backend_contract import Party


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def service(time: VirtualTime) -> MemoryService:
    return MemoryService(VirtualTimers(time))


# Virtual time


@given(st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=12), st.floats(0, 20))
def test_what_is_due_fires_and_nothing_else(due: list[tuple[float, bool]], seconds: float) -> None:
    time = VirtualTime()
    fired: list[float] = []
    timers = VirtualTimers(time)
    for when, cancelled in due:
        timer = timers.call_at(when, partial(fired.append, when))
        if cancelled:
            timer.cancel()
    time.advance(seconds)
    assert fired == sorted(when for when, cancelled in due if not cancelled and when <= seconds)
    assert time.now() == seconds


def test_a_paused_party_does_nothing_until_it_goes_on(time: VirtualTime) -> None:
    fired: list[str] = []
    paused, other = VirtualTimers(time), VirtualTimers(time)
    paused.call_at(1, lambda: fired.append("first"))
    paused.call_at(2, lambda: fired.append("second"))
    other.call_at(3, lambda: fired.append("other"))
    paused.pause()
    paused.pause()
    assert paused.paused
    time.advance(5)
    assert fired == ["other"]
    paused.resume()
    paused.resume()
    time.advance(0)
    assert fired == ["other", "first", "second"]


# Observers


def test_threads_may_stop_observing_at_the_same_moment(service: MemoryService) -> None:
    failed: list[Exception] = []

    def observe(number: int) -> None:
        try:
            for _ in range(300):
                ends = [service.observe(Queue(f"{number}-{k}"), lambda: None) for k in range(8)]
                for end in ends:
                    end()
        except Exception as error:
            failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=observe, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failed == []


# Faults


def test_a_partition_answers_nothing_and_then_fails_what_was_asked(
    service: MemoryService, time: VirtualTime
) -> None:
    one, two = (Party(MemoryBackend(service, 10.0, VirtualTimers(time))) for _ in range(2))
    assert isinstance(one.backend, MemoryBackend)
    entry, contender, _ = two.enqueue("q")
    told: list[str] = []
    one.backend.watch(contender, 0, lambda _: told.append("departed"))
    one.backend.faults.partition()
    asked = one.backend.heartbeat()
    two.backend.withdraw([entry])
    time.advance(20)
    assert not asked.done()
    assert told == []
    assert one.listener.events == []
    assert service.sessions() == []
    one.backend.faults.heal()
    assert isinstance(asked.exception(0), BackendUnavailable)
    assert told == ["departed"]
    assert one.listener.ended.is_set()


# In real time


@pytest.mark.usefixtures("no_leaks")
def test_the_top_is_a_root_apart_from_the_default() -> None:
    with (
        coordlock.connect("memory://roots/") as top,
        coordlock.connect("memory://roots", root="/") as same,
        coordlock.connect("memory://roots") as default,
        top.lock("orders") as grant,
    ):
        assert same.lock("orders").try_acquire() is None
        assert default.lock("orders").acquire(timeout=0).release()
        assert (top.admin.names(), default.admin.names()) == (["orders"], [])
        grant.transaction().put("/app/config", b"on").commit()
        assert grant.read("/app/config") == coordlock.types.VersionedValue(b"on", 1)
        with pytest.raises(coordlock.errors.InvalidName):
            grant.read("/orders/x")
