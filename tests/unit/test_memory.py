from __future__ import annotations

import uuid
from functools import partial

import pytest
from coordlock_memory import MemoryBackend, MemoryService, VirtualTime, VirtualTimers
from hypothesis import given
from hypothesis import strategies as st

import coordlock
from coordlock.errors import BackendUnavailable
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Entry, Owner

OWNER = Owner("here", 1)


class Listener:
    """Remembers what was said of a session."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def suspect(self, reason: str) -> None:
        self.heard.append("suspect")

    def recovered(self) -> None:
        self.heard.append("recovered")

    def lost(self, reason: str) -> None:
        self.heard.append("lost")


class Peer:
    """A backend with an open session, under virtual time."""

    def __init__(self, service: MemoryService, time: VirtualTime, ttl: float = 10.0) -> None:
        self.timers = VirtualTimers(time)
        self.listener = Listener()
        self.backend = MemoryBackend(service, ttl, self.timers)
        self.info = self.backend.open(self.listener).result(0)

    def enqueue(self, queue: str = "q") -> tuple[Entry, Contender]:
        entry = Entry(queue, uuid.uuid4().hex, Mode.EX, OWNER)
        contender = self.backend.enqueue([entry]).result(0)[0].find(entry.id)
        assert contender is not None
        return entry, contender


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def service(time: VirtualTime) -> MemoryService:
    return MemoryService(VirtualTimers(time))


@pytest.fixture
def one(service: MemoryService, time: VirtualTime) -> Peer:
    return Peer(service, time)


@pytest.fixture
def two(service: MemoryService, time: VirtualTime) -> Peer:
    return Peer(service, time)


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


# Faults


def test_a_partition_answers_nothing_and_then_fails_what_was_asked(
    service: MemoryService, time: VirtualTime, one: Peer, two: Peer
) -> None:
    entry, contender = two.enqueue()
    told: list[str] = []
    one.backend.watch(contender, 0, lambda _: told.append("departed"))
    one.backend.faults.partition()
    asked = one.backend.heartbeat()
    two.backend.withdraw([entry])
    time.advance(20)
    assert not asked.done()
    assert told == []
    assert one.listener.heard == []
    assert service.sessions() == []
    one.backend.faults.heal()
    assert isinstance(asked.exception(0), BackendUnavailable)
    assert told == ["departed"]
    assert one.listener.heard == ["lost"]


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
