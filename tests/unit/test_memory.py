from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from coordlock_memory import Fault, MemoryBackend, MemoryService, VirtualTime, VirtualTimers
from hypothesis import given
from hypothesis import strategies as st

import coordlock
from coordlock.errors import BackendUnavailable, ClientClosed, SessionLost
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Entry, Owner
from coordlock.testing.waiting import eventually

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


def test_a_timer_in_the_past_fires_now(time: VirtualTime) -> None:
    time.advance(10)
    fired: list[float] = []
    VirtualTimers(time).call_at(3, lambda: fired.append(time.now()))
    time.advance(0)
    assert fired == [10]


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


def test_closed_timers_fire_what_was_due_later_and_take_no_more(time: VirtualTime) -> None:
    fired: list[str] = []
    timers, other = VirtualTimers(time), VirtualTimers(time)
    timers.call_at(5, lambda: fired.append("mine"))
    other.call_at(5, lambda: fired.append("another's"))
    timers.close()
    assert fired == ["mine"]
    with pytest.raises(ClientClosed):
        timers.call_at(6, lambda: None)
    time.advance(5)
    assert fired == ["mine", "another's"]


# Sessions


def test_a_session_lives_from_its_last_heartbeat_for_its_time_to_live(
    service: MemoryService, time: VirtualTime, one: Peer
) -> None:
    for _ in range(5):
        time.advance(9)
        assert one.backend.heartbeat().result(0) == 10.0
    time.advance(9.99)
    assert service.sessions() == [one.info.id]
    time.advance(0.01)
    assert service.sessions() == []
    assert one.listener.heard == ["lost"]
    assert isinstance(one.backend.heartbeat().exception(0), SessionLost)


def test_the_owner_hears_of_the_session_before_others_hear_of_the_departure(
    service: MemoryService, one: Peer, two: Peer
) -> None:
    heard: list[str] = []
    _, contender = one.enqueue()
    one.listener.lost = lambda reason: heard.append("owner")  # type: ignore[method-assign]
    two.backend.watch(contender, 0, lambda _: heard.append("other"))
    service.expire(one.info.id)
    assert heard == ["owner", "other"]


# Watches


def test_no_watch_is_left_of_those_that_were_told_or_cancelled(
    service: MemoryService, one: Peer, two: Peer
) -> None:
    entry, first = one.enqueue()
    _, second = one.enqueue()
    two.backend.watch(first, 0, lambda _: None)
    two.backend.watch(second, 0, lambda _: None)()
    one.backend.withdraw([entry])
    two.backend.watch(first, 0, lambda _: None)()
    assert not service._watches.watched


def test_a_watch_of_a_closed_client_does_not_disturb_others(one: Peer, two: Peer) -> None:
    entry, contender = one.enqueue()
    told: list[str] = []
    two.backend.faults.latency = lambda: 0.1
    two.backend.watch(contender, 0, lambda _: told.append("closed"))
    one.backend.watch(contender, 0, lambda _: told.append("open"))
    two.backend.close()
    assert one.backend.withdraw([entry]).result(0) is True
    assert told == ["open"]


# Faults


def test_a_late_request_of_a_dead_session_has_no_effect(
    service: MemoryService, time: VirtualTime, one: Peer
) -> None:
    one.backend.faults.inject("enqueue", Fault.LATE)
    one.backend.enqueue([Entry("q", "1" * 32, Mode.EX, OWNER)])
    service.expire(one.info.id)
    time.advance(2)
    assert service.queues() == []


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


# The contract, by random use


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


def test_clients_that_come_and_go_leave_no_threads() -> None:
    def visit(number: int) -> None:
        for _ in range(5):
            with coordlock.connect("memory://busy") as client, client.lock(f"q{number % 2}"):
                pass

    with ThreadPoolExecutor(6) as pool:
        for visitor in [pool.submit(visit, number) for number in range(6)]:
            visitor.result(60)


@pytest.mark.usefixtures("no_leaks")
def test_a_session_expires_in_real_time_too() -> None:
    service = MemoryService()
    backend = MemoryBackend(service, 0.1)
    listener = Listener()
    backend.open(listener).result(0)
    eventually(lambda: listener.heard == ["lost"])
    backend.close()
