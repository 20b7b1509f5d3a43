"""What clients record: each event once, with what a listener needs to know."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from types import FrameType
from typing import TypeVar
from weakref import ref

import pytest

import coordlock
from coordlock.errors import AcquireTimeout, DeadlockDetected, LockLost, StaleToken, WaitCancelled
from coordlock.fencing.http.problem import Problem, read_stale
from coordlock.fencing.marks import Marks
from coordlock.fencing.token import FencingToken
from coordlock.runtime.log import flush
from coordlock.runtime.recorder import RECORDER
from coordlock.telemetry import (
    AcquireFailed,
    AcquireStarted,
    AcquireWaiting,
    DeadlockFound,
    Event,
    FenceRefused,
    Granted,
    ItemEnded,
    JobEnded,
    LockEvent,
    Lost,
    Released,
    ReleaseRequested,
    SessionChanged,
    Upgraded,
    on_event,
)
from coordlock.testing.lock_service import LockService
from coordlock.testing.waiting import eventually

E = TypeVar("E", bound=Event)


def of(kind: type[E], events: list[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def only(kind: type[E], events: list[Event]) -> E:
    (found,) = of(kind, events)
    return found


def test_an_acquire_is_recorded_from_its_beginning_to_the_release(
    locks: LockService, recorded: list[Event]
) -> None:
    client = locks.connect()
    recorded.clear()
    with client.lock("orders") as grant:
        pass
    assert [type(event) for event in recorded] == [AcquireStarted, Granted, Released]
    for event in of(LockEvent, recorded):
        assert (event.backend, event.kind, event.mode, event.name) == (
            *("memory", "lock", "EX", "orders"),
        )
        assert event.time == pytest.approx(time.time(), abs=60)
    assert len({event.acquire for event in of(LockEvent, recorded)}) == 1
    granted = only(Granted, recorded)
    assert (granted.token, granted.contended, granted.handoff) == (grant.token, False, None)
    assert only(Released, recorded).token == grant.token


def test_a_wait_is_recorded_with_its_position_and_the_handoff(
    locks: LockService, recorded: list[Event]
) -> None:
    client = locks.connect()
    with locks.held("orders"):
        recorded.clear()
        waiter = threading.Thread(target=lambda: client.lock("orders").acquire().release())
        waiter.start()
        eventually(lambda: of(AcquireWaiting, recorded))
    waiter.join()
    waiting = only(AcquireWaiting, recorded)
    assert waiting.position == 1
    granted = only(Granted, recorded)
    assert (granted.acquire, granted.contended) == (waiting.acquire, True)
    assert granted.handoff is not None
    assert 0 <= granted.handoff <= granted.duration


@pytest.mark.parametrize(
    ("timeout", "outcome"), [(0, "busy"), (0.01, "timeout")], ids=["a try", "a wait"]
)
def test_an_acquire_that_ends_without_the_lock_says_how(
    locks: LockService, recorded: list[Event], timeout: float, outcome: str
) -> None:
    client = locks.connect()
    with locks.held("orders"), pytest.raises(AcquireTimeout):
        client.lock("orders", timeout=timeout).acquire()
    failed = only(AcquireFailed, recorded)
    assert (failed.outcome, failed.error, failed.contended) == (outcome, "AcquireTimeout", True)


def test_a_cancelled_acquire_is_recorded_as_cancelled(
    locks: LockService, recorded: list[Event]
) -> None:
    client, cancellation = locks.connect(), coordlock.Cancellation()

    def cancel() -> None:
        eventually(lambda: of(AcquireWaiting, recorded))
        cancellation.cancel("enough")

    thread = threading.Thread(target=cancel)
    thread.start()
    with locks.held("orders"), pytest.raises(WaitCancelled):
        client.lock("orders").acquire(cancellation=cancellation)
    thread.join()
    assert only(AcquireFailed, recorded).outcome == "cancelled"


def test_a_cancelled_task_is_recorded_as_cancelled(
    locks: LockService, recorded: list[Event]
) -> None:
    async def cancel() -> None:
        async with coordlock.connect_async(locks.url) as client:
            task = asyncio.create_task(client.lock("orders").acquire())
            await asyncio.to_thread(eventually, lambda: of(AcquireWaiting, recorded))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with locks.held("orders"):
        asyncio.run(cancel())
    assert only(AcquireFailed, recorded).outcome == "cancelled"


def test_a_request_to_release_is_recorded_once_by_a_holder_that_listens(
    locks: LockService, recorded: list[Event]
) -> None:
    client, other = locks.connect(), locks.connect()
    deaf, grant = client.lock("stocks").acquire(), client.lock("orders").acquire()
    requested = grant.release_requested
    for name in ("stocks", "orders", "orders"):
        assert other.admin.request_release(name, "a deployment waits")
    assert requested.wait(60)
    request = only(ReleaseRequested, recorded)
    assert (request.name, request.token) == ("orders", grant.token)
    assert request.reason == "a deployment waits"
    grant.release()
    deaf.release()


def test_an_eviction_is_a_loss_that_says_so(locks: LockService, recorded: list[Event]) -> None:
    client = locks.connect()
    grant = client.lock("orders").acquire()
    locks.advance(1)  # from then on its contender is watched
    client.admin.evict_all("orders")
    grant.lost.wait(60)
    lost = only(Lost, recorded)
    assert (lost.reason, lost.token) == ("evicted", grant.token)
    assert lost.remaining > 0
    assert not of(Released, recorded)


def test_the_end_of_the_session_is_a_loss_and_a_change_of_the_session(
    locks: LockService, recorded: list[Event]
) -> None:
    client = locks.connect()
    grant = client.lock("orders").acquire()
    locks.lose("orders")
    locks.advance(client.settings.ttl / 2)
    grant.lost.wait(60)
    assert only(Lost, recorded).reason == "session"
    assert "lost" in [event.state for event in of(SessionChanged, recorded)]


def test_a_loss_at_the_deadline_says_so_and_the_return_says_how_long_it_was_away(
    locks: LockService, recorded: list[Event]
) -> None:
    client = locks.connect(ttl=10)
    mine = client._engine.number
    grant = client.lock("orders").acquire()
    with locks.silent():
        locks.advance(6)
        locks.advance(6)
        grant.lost.wait(60)
    lost = only(Lost, recorded)
    assert (lost.reason, lost.remaining) == ("deadline", 0.0)

    client.lock("orders").acquire()
    changes = [event for event in of(SessionChanged, recorded) if event.client == mine]
    assert [event.state for event in changes] == ["connected", "in doubt", "lost", "connected"]
    assert changes[-1].away >= 10


def test_a_hold_that_lasts_longer_than_its_limit_is_a_loss(
    locks: LockService, recorded: list[Event]
) -> None:
    grant = locks.connect().lock("orders", max_hold=5).acquire()
    locks.advance(6)
    with pytest.raises(LockLost):
        grant.check()
    lost = only(Lost, recorded)
    assert lost.reason == "max_hold"
    assert lost.held == pytest.approx(6, abs=1)


def test_a_loss_that_only_the_release_finds_is_a_loss(
    locks: LockService, recorded: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    """As after a pause of the process that was longer than the lease, before any timer runs."""
    client = locks.connect(ttl=10)
    grant = client.lock("orders").acquire()
    with pytest.MonkeyPatch.context() as paused:
        now = client._engine.clock.now
        paused.setattr(client._engine.clock, "now", lambda: now() + 11)
        assert not grant.release()
    assert only(Lost, recorded).reason == "deadline"
    assert not of(Released, recorded)
    flush(10)
    assert "lock 'orders' (token" in caplog.text


def test_an_eviction_that_only_the_release_finds_is_a_loss(
    locks: LockService, recorded: list[Event]
) -> None:
    client = locks.connect()
    grant = client.lock("orders").acquire()
    client.admin.evict_all("orders")  # before its contender is watched
    assert not grant.release()
    assert only(Lost, recorded).reason == "evicted"
    assert not of(Released, recorded)


def test_an_item_that_is_lost_at_work_is_recorded(
    locks: LockService, recorded: list[Event]
) -> None:
    client = locks.connect()
    queue = client.work_queue("mails")
    queue.put(b"")
    item = queue.take(timeout=10)
    client._engine.sessions.latest.lost("the test")  # type: ignore[union-attr]
    assert item.lost.wait(60)
    eventually(lambda: of(ItemEnded, recorded))
    assert only(ItemEnded, recorded).outcome == "lost"


def test_a_client_that_closes_loses_nothing(locks: LockService, recorded: list[Event]) -> None:
    client = locks.connect()
    grant = client.lock("orders").acquire()
    client.close()
    assert grant.state is coordlock.GrantState.LOST
    assert not of(Lost, recorded)
    assert only(Released, recorded).token == grant._first_token
    assert of(SessionChanged, recorded)[-1].state == "closed"


def test_terms_and_permits_say_what_they_are(locks: LockService, recorded: list[Event]) -> None:
    client = locks.connect()
    client.election("scheduler").campaign().resign()
    client.semaphore("pool", permits=3).acquire().release()
    client.multi_lock(["a", "b"]).acquire().release()
    kinds = [(event.kind, event.mode, event.name) for event in of(Granted, recorded)]
    assert kinds == [
        ("election", "EX", "scheduler"),
        ("semaphore", "permit", "pool"),
        ("lock", "several", "a, b"),
    ]


def test_an_upgrade_is_recorded_as_an_acquire_of_its_own(
    locks: LockService, recorded: list[Event]
) -> None:
    client, reading = locks.connect(), threading.Event()
    with client.upgradeable_lock("a") as grant, client.read_lock("a") as reader:
        recorded.clear()
        with pytest.raises(coordlock.WaitTimeout):
            grant.upgrade(0)
        assert only(AcquireFailed, recorded).outcome == "busy"
        recorded.clear()

        def leave() -> None:
            eventually(lambda: of(AcquireWaiting, recorded))
            reading.set()
            reader.release()

        thread = threading.Thread(target=leave)
        thread.start()
        grant.upgrade()
        thread.join()
        assert reading.is_set()
        upgrades = [event for event in of(LockEvent, recorded) if event.kind == "upgrade"]
        assert [type(event) for event in upgrades] == [AcquireStarted, AcquireWaiting, Upgraded]
        assert only(AcquireWaiting, recorded).position == 1
        assert only(Upgraded, recorded).contended
        recorded.clear()
        grant.downgrade()
    assert [type(event) for event in of(LockEvent, recorded)] == [Released]


def test_a_deadlock_is_recorded_by_the_one_that_gives_up(recorded: list[Event]) -> None:
    with coordlock.connect("memory://", deadlock_delay=0.1) as client:
        has_b, deadlocked = threading.Event(), list[DeadlockDetected]()

        def take(name: str) -> None:
            try:
                client.lock(name, timeout=30).acquire().release()
            except DeadlockDetected as error:
                deadlocked.append(error)

        def other() -> None:
            with client.lock("b"):
                has_b.set()
                take("a")

        thread = threading.Thread(target=other)
        with client.lock("a"):
            thread.start()
            has_b.wait(60)
            take("b")
        thread.join()
    eventually(lambda: of(DeadlockFound, recorded))
    assert only(DeadlockFound, recorded).name == deadlocked[0].name
    assert only(AcquireFailed, recorded).outcome == "deadlock"


def test_a_run_of_a_job_is_recorded_with_its_outcome(
    locks: LockService, recorded: list[Event]
) -> None:
    job = locks.connect().job("nightly")
    with job.run(1):
        pass
    with pytest.raises(ZeroDivisionError), job.run(2):
        1 / 0  # noqa: B018
    done, failed = of(JobEnded, recorded)
    assert (done.job, done.slot, done.outcome, done.error) == ("nightly", "1", "done", "")
    assert (failed.slot, failed.outcome) == ("2", "failed")
    assert failed.error.startswith("ZeroDivisionError")
    assert [event.kind for event in of(Granted, recorded)] == ["job", "job"]


def test_an_item_of_a_work_queue_is_recorded_with_its_outcome(
    locks: LockService, recorded: list[Event]
) -> None:
    queue = locks.connect().work_queue("mails")
    for _ in range(3):
        queue.put(b"")
    queue.take(timeout=10).ack()
    queue.take(timeout=10).nack(reason="no")
    queue.take(timeout=10).release()
    ended = of(ItemEnded, recorded)
    assert [event.outcome for event in ended] == ["acknowledged", "failed", "given back"]
    assert {event.queue for event in ended} == {"mails"}
    assert all(event.deliveries >= 1 and event.duration >= 0 for event in ended)


def test_an_item_that_dies_is_logged_once(
    locks: LockService, caplog: pytest.LogCaptureFixture
) -> None:
    queue = locks.connect().work_queue("mails", max_failures=2)
    queue.put(b"")
    for _ in range(2):
        queue.take(timeout=10).nack(reason="no")
    flush(10)
    dead = [record for record in caplog.records if "is dead" in record.getMessage()]
    assert [record.getMessage() for record in dead] == ["work queue 'mails': item 1 is dead: no"]
    assert vars(dead[0])["coordlock_item"] == "1"


def test_slots_of_a_schedule_that_no_host_has_started_are_logged_once_as_skipped(
    locks: LockService, caplog: pytest.LogCaptureFixture
) -> None:
    day = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(8)]
    for catch_up in ("all", "latest"):
        for client in (locks.connect(), locks.connect()):
            job = client.job(catch_up, schedule=coordlock.Every("1h"), catch_up=catch_up)
            for slot in (day[1], day[2], day[6], day[4], day[7]):
                with suppress(coordlock.JobNotRun), job.run(slot):
                    pass
    flush(10)
    skipped = [record for record in caplog.records if "skipped" in record.getMessage()]
    assert [record.getMessage() for record in skipped] == [
        "job 'latest': no host has started the slots from 2026-01-01T03:00:00Z until "
        "2026-01-01T06:00:00Z: they are skipped"
    ]
    assert vars(skipped[0])["coordlock_outcome"] == "skipped"


def test_a_long_wait_is_logged_once_with_the_nearest_ahead(
    locks: LockService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "coordlock")
    client, gives_up = locks.connect(), coordlock.Cancellation()

    def wait(label: str, cancellation: coordlock.Cancellation | None = None) -> threading.Thread:
        def acquire() -> None:
            with suppress(WaitCancelled):
                lock = client.lock("orders", label=label)
                lock.acquire(cancellation=cancellation).release()

        before = len(client.lock("orders").contenders())
        thread = threading.Thread(target=acquire)
        thread.start()
        eventually(lambda: len(client.lock("orders").contenders()) == before + 1)
        return thread

    def lines() -> list[str]:
        flush(10)
        texts = [record.getMessage() for record in caplog.records]
        return [text for text in texts if "waiting for" in text]

    with locks.held("orders"):
        first, second = wait("first", gives_up), wait("second")
        clock = time.time
        with pytest.MonkeyPatch.context() as later:
            later.setattr(time, "time", lambda: clock() + 30)
            locks.advance(5)  # which sweeps
            eventually(lambda: len(lines()) == 2)
            gives_up.cancel("the second has another one ahead now")
            first.join()
            for _ in range(3):
                locks.advance(5)
    second.join()
    assert len(lines()) == 2
    assert all("lock 'orders': waiting for 3" in line for line in lines())
    assert sorted("another client" in line for line in lines()) == [False, True]


def test_a_fence_records_a_stale_token(recorded: list[Event]) -> None:
    marks = Marks().raised("table", FencingToken(5))
    with pytest.raises(StaleToken):
        marks.raised("table", FencingToken(3))
    refused = only(FenceRefused, recorded)
    assert (refused.resource, refused.token, refused.newest) == ("table", 3, 5)


def test_a_client_records_what_the_fence_of_a_server_has_refused(recorded: list[Event]) -> None:
    body = Problem.stale(StaleToken("table", 3, 5)).body
    assert read_stale(body) is not None
    refused = only(FenceRefused, recorded)
    assert (refused.resource, refused.token, refused.newest) == ("table", 3, 5)


# Listeners of users


def test_a_listener_hears_of_its_own_client_alone(locks: LockService) -> None:
    first, second = locks.connect(), locks.connect()
    events: list[Event] = []
    with first.on_event(events.append) as subscription:
        first.lock("mine").acquire().release()
        second.lock("other").acquire().release()
        assert subscription.flush()
    assert {event.name for event in of(LockEvent, events)} == {"mine"}
    assert len(of(LockEvent, events)) == 3
    first.lock("later").acquire().release()
    assert len(of(LockEvent, events)) == 3


def test_a_listener_that_raises_is_logged_and_called_again(
    locks: LockService, caplog: pytest.LogCaptureFixture
) -> None:
    client, seen = locks.connect(), list[Event]()

    def listener(event: Event) -> None:
        seen.append(event)
        raise RuntimeError("mine")

    with client.on_event(listener) as subscription:
        client.lock("a").acquire().release()
        assert subscription.flush()
    assert len(seen) == 3
    eventually(lambda: "a listener of events failed" in caplog.text)


def test_a_listener_that_blocks_delays_no_lock_and_misses_the_newest(
    locks: LockService, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlock.runtime.recorder.MAX_PENDING", 10)
    client, go_on, seen = locks.connect(), threading.Event(), list[Event]()

    def listener(event: Event) -> None:
        go_on.wait(30)
        seen.append(event)

    with client.on_event(listener) as subscription:
        for _ in range(10):
            client.lock("a").acquire().release()
        assert subscription.dropped >= 30 - 11
        go_on.set()
        assert subscription.flush()
    assert len(seen) == 30 - subscription.dropped
    eventually(lambda: caplog.text.count("is too slow") == 1)


def test_a_listener_may_end_its_own_subscription(locks: LockService) -> None:
    client, seen = locks.connect(), list[Event]()

    def listener(event: Event) -> None:
        seen.append(event)
        subscription()

    subscription = client.on_event(listener)
    client.lock("a").acquire().release()
    assert subscription.flush()
    assert len(seen) == 1


@pytest.mark.filterwarnings("ignore:a client of .* was dropped:ResourceWarning")
def test_a_client_with_a_listener_is_closed_when_it_is_dropped() -> None:
    client, listeners = coordlock.connect("memory://"), RECORDER.listeners
    client.on_event(print)
    client.lock("a").acquire().release()
    dropped = ref(client._access)
    del client
    gc.collect()
    assert dropped() is None
    assert RECORDER.listeners == listeners


def test_a_listener_of_the_process_hears_of_all(locks: LockService) -> None:
    events: list[Event] = []
    with on_event(events.append) as subscription:
        locks.connect().lock("a").acquire().release()
        locks.connect().lock("b").acquire().release()
        assert subscription.flush()
    assert {event.name for event in of(LockEvent, events)} == {"a", "b"}


def test_a_recorder_of_coordlocks_own_that_fails_is_logged_once_and_called_again(
    locks: LockService, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def broken(event: Event) -> None:
        seen.append(type(event).__name__)
        raise RuntimeError("broken")

    remove = RECORDER.add(broken)
    try:
        client = locks.connect()
        for _ in range(2):
            client.lock("a").acquire().release()
        assert seen.count("Granted") == 2
        flush(10)
        assert caplog.text.count("telemetry failed") == 1
    finally:
        remove()


def test_a_release_in_the_midst_of_a_listener_is_recorded_after_it(locks: LockService) -> None:
    """As by a signal handler: a library for metrics may hold a lock then that is not reentrant."""
    client, library, seen = locks.connect(), threading.Lock(), list[str]()
    other = list[coordlock.Grant]()

    def count(event: Event) -> None:
        assert library.acquire(blocking=False), "called inside of itself"
        if isinstance(event, LockEvent):
            seen.append(f"{type(event).__name__} {event.name}")
            if seen[-1] == "Granted mine":
                other.pop().release()  # a signal comes here
        library.release()

    remove = RECORDER.add(count)
    try:
        other.append(client.lock("other").acquire())
        client.lock("mine").acquire().release()
    finally:
        remove()
    assert seen == [
        *("AcquireStarted other", "Granted other", "AcquireStarted mine", "Granted mine"),
        *("Released other", "Released mine"),
    ]


def test_a_recorder_costs_at_most_fifteen_calls_for_an_acquire_and_its_release() -> None:
    package = os.path.dirname(coordlock.__file__)

    def calls(client: coordlock.Client) -> int:
        count = 0

        def look(frame: FrameType, event: str, _: object) -> None:
            nonlocal count
            count += event == "call" and frame.f_code.co_filename.startswith(package)

        client.lock("a").acquire().release()  # which imports what it needs
        sys.setprofile(look)
        try:
            client.lock("a").acquire().release()
        finally:
            sys.setprofile(None)
        return count

    with coordlock.connect("memory://") as client:
        alone = calls(client)
        remove = RECORDER.add(lambda _: None)
        try:
            assert alone < calls(client) <= alone + 15
        finally:
            remove()


def test_where_nobody_listens_nothing_is_made(
    locks: LockService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("an event was made")

    monkeypatch.setattr("coordlock.kernel.recording.Recording.__init__", never)
    monkeypatch.setattr("coordlock.model.events.SessionChanged", never)
    monkeypatch.setattr("coordlock.model.events.HeartbeatAnswered", never)
    client = locks.connect()
    client.lock("a").acquire().release()
    locks.advance(20)
