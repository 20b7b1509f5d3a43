"""Closing where the session is the application's: it goes on, and contenders don't go with it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from coordlock_memory import Fault, MemoryBackend, MemoryService

from coordlock import Client, Settings
from coordlock.backend import SessionInfo, SessionListener
from coordlock.errors import BackendUnavailable, ClientClosed
from coordlock.kernel.access import Access
from coordlock.kernel.engine import Engine
from coordlock.model.contender import Entry, Snapshot
from coordlock.runtime.driver import run
from coordlock.runtime.promise import Promise, failed, resolved
from coordlock.testing.waiting import eventually
from tests.unit.signals import interrupted


class Given(MemoryBackend):
    """As with a given `KazooClient`: one session at a time is used, and none is ended."""

    #: Seconds after which the client takes its session for lost, long before the service does.
    patience = 600.0
    is_open = closed = was_asked = False

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        self.is_open = False
        shared: Promise[SessionInfo] = Promise()

        def opened(answer: Promise[SessionInfo]) -> None:
            if (error := answer.exception()) is not None:
                shared.fail(error)
            else:
                self.is_open = True
                shared.resolve(SessionInfo(answer.result().id, self.patience, shared=True))

        super().open(listener).add_done_callback(opened)
        return shared

    def heartbeat(self) -> Promise[float]:
        granted: Promise[float] = Promise()

        def answered(answer: Promise[float]) -> None:
            if answer.exception() is None:
                granted.resolve(self.patience)
            else:
                granted.follow(answer)

        super().heartbeat().add_done_callback(answered)
        return granted

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        answer = super().enqueue(entries, unless_blocked=unless_blocked)
        self.was_asked = True
        return answer

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        if not self.is_open or self.closed:
            return failed(BackendUnavailable("memory", "no session is open"))
        return super().withdraw(entries)

    def close(self) -> Promise[None]:
        self.closed = True
        return resolved(None)


@pytest.fixture
def service(no_leaks: None) -> Iterator[MemoryService]:
    service = MemoryService()
    yield service
    for session in service.sessions():
        service.expire(session)


@pytest.fixture
def given(service: MemoryService) -> Iterator[Given]:
    given = Given(service, 3600.0)
    yield given
    MemoryBackend.close(given)


def connected(given: Given, request_timeout: float) -> Client:
    engine = Engine(given, Settings("memory", request_timeout=request_timeout))
    run(engine.session())
    return Client._of(Access(engine))


@pytest.fixture
def client(given: Given) -> Client:
    return connected(given, 0.2)


def length(given: Given, queue: str = "q") -> int:
    return len(given.service.snapshot(queue).contenders)


def test_closing_withdraws_what_is_held_and_waits_for_that(given: Given) -> None:
    client = connected(given, 30.0)
    client.lock("q").acquire()
    given.faults.latency = lambda: 0.1
    client.close()
    assert (length(given), given.closed) == (0, True)


def test_what_an_outage_kept_from_being_withdrawn_is_withdrawn_after_it(
    given: Given, client: Client
) -> None:
    client.lock("q").acquire()
    given.faults.partition()
    client.close()
    assert (length(given), given.closed) == (1, False)
    with pytest.raises(ClientClosed):
        client.lock("q").acquire()
    given.faults.heal()
    eventually(lambda: given.closed)
    assert length(given) == 0


def test_ctrl_c_while_closing_leaves_nobody(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A Ctrl-C that struck at the end of a generator cannot be raised, and is no news.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    for number in itertools.count(1):
        given = Given(service, 3600.0)
        engine = Engine(given, Settings("memory", request_timeout=0.2))
        run(engine.session())
        client = Client._of(Access(engine))
        client.lock("q").acquire()
        client.lock("r").acquire()
        came = interrupted(client.close, number)
        client.close()
        eventually(lambda: given.closed)  # noqa: B023
        assert (length(given), length(given, "r")) == (0, 0)
        if not came:
            break
    assert number > 30


def test_what_is_withdrawn_after_closing_takes_a_new_session_where_the_old_one_was_lost(
    given: Given, client: Client
) -> None:
    given.patience = 0.5
    client._engine.sessions.latest = None  # it has the patience of before
    grant = client.lock("q").acquire()
    given.faults.partition()
    assert grant.lost.wait(30)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.lock("r").acquire)
        eventually(lambda: not given.is_open, "another session to be asked for")
        client.close()
        assert isinstance(waiting.exception(30), ClientClosed)
    assert length(given) == 1
    given.faults.heal()
    eventually(lambda: given.closed)
    assert length(given) == 0


def test_a_request_that_takes_effect_after_closing_leaves_nobody(
    given: Given, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Callable[[], object]] = []
    enqueue = given.service.enqueue
    wait = lambda *what, **how: late.append(partial(enqueue, *what, **how))  # noqa: E731
    monkeypatch.setattr(given.service, "enqueue", wait)
    monkeypatch.setattr("coordlock_memory.backend._LATE", 0.01)
    given.faults.inject("enqueue", Fault.LATE, times=1000)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.lock("q").acquire)
        eventually(lambda: given.was_asked)
        client.close()
        assert isinstance(waiting.exception(30), ClientClosed)
    eventually(lambda: late)
    for request in late:
        request()
    eventually(lambda: length(given) == 0)
    # It is looked for some more times, but not here.
    client._engine.timers.close()
    eventually(lambda: given.closed)
