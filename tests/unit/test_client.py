from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from coordlock_memory import Fault, MemoryBackend, MemoryService

import coordlock
from coordlock import (
    BackendUnavailable,
    Client,
    ConfigurationError,
    GrantState,
    LockLost,
    Settings,
)
from coordlock.backend import SessionInfo, SessionListener
from coordlock.client.client import _opening
from coordlock.errors import ClientClosed, WaitUnavailable
from coordlock.kernel.access import Access
from coordlock.kernel.engine import Engine
from coordlock.recipes import election
from coordlock.runtime import log
from coordlock.runtime.driver import run
from coordlock.runtime.promise import Promise, resolved
from coordlock.testing.lock_service import LockService
from coordlock.testing.waiting import eventually
from coordlock.types import ClientState, ClientStatus
from tests.unit.clients import Service, backend

pytestmark = pytest.mark.usefixtures("no_leaks")


def script(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``source`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", source],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


# Connecting


def test_a_client_of_an_unknown_library_is_refused() -> None:
    for client in (object(), 5, MemoryService):
        with pytest.raises(ConfigurationError, match="kazoo"):
            coordlock.connect(client=client)


def silent_link(connect_timeout: float) -> Engine:
    silent = MemoryBackend(MemoryService(), 15.0)
    silent.faults.partition()
    return Engine(silent, Settings("memory", connect_timeout=connect_timeout))


@pytest.mark.usefixtures("no_leaks")
def test_connecting_to_a_silent_service_fails_in_time_and_leaves_nothing() -> None:
    engine = silent_link(0.2)
    started = time.monotonic()
    with pytest.raises(BackendUnavailable):
        run(_opening(engine))
    assert 0.2 <= time.monotonic() - started < 30
    eventually(lambda: engine.closed)


@pytest.mark.usefixtures("no_leaks")
def test_connecting_to_a_failing_service_names_its_last_failure() -> None:
    failing = MemoryBackend(MemoryService(), 15.0)
    failing.faults.inject("open", Fault.LOSE_REQUEST, 1000)
    engine = Engine(failing, Settings("memory", connect_timeout=0.2))
    with pytest.raises(BackendUnavailable, match="the request was lost"):
        run(_opening(engine))


class MuteAtFirst(MemoryBackend):
    """The first session is never opened, and nothing says so."""

    opened = 0

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        self.opened += 1
        return Promise() if self.opened == 1 else super().open(listener)


@pytest.mark.usefixtures("no_leaks")
def test_an_attempt_to_open_a_session_that_comes_to_no_end_is_given_up_for_another() -> None:
    mute = MuteAtFirst(MemoryService(), 15.0)
    engine = Engine(mute, Settings("memory", connect_timeout=0.1, request_timeout=0.1))
    with Client._of(Access(engine)) as client:
        run(engine.sessions.live())
        assert mute.opened == 2
        client.lock("a").acquire(30.0).release()


@pytest.mark.usefixtures("no_leaks")
def test_connecting_can_be_awaited_and_entered() -> None:
    async def main() -> None:
        client = await coordlock.connect_async("memory://awaited")
        async with client.lock("q"):
            assert await client.admin.names() == ["q"]
        await client.close()
        async with coordlock.connect_async("memory://entered") as client:
            assert await client.admin.names() == []
        with pytest.raises(ClientClosed):
            await client.admin.names()

    asyncio.run(main())


# Closing


def test_closing_is_idempotent_and_several_threads_may_do_it(service: Service) -> None:
    client = service.client()
    grant = client.lock("q").acquire()
    with ThreadPoolExecutor(8) as pool:
        for closing in [pool.submit(client.close) for _ in range(8)]:
            assert closing.result(30) is None
    client.close()
    assert service.size("q") == 0
    assert service.service.sessions() == []
    assert grant.release() is False
    with pytest.raises(LockLost):
        grant.check()


class Stubborn(MemoryBackend):
    """A backend whose session is shared, and that doesn't answer to `close`."""

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        opened = super().open(listener).result()
        return resolved(SessionInfo(opened.id, opened.ttl, shared=True))

    closing: Promise[None] | None = None

    def close(self) -> Promise[None]:
        super().close()
        self.closing = self.closing or Promise()
        return self.closing


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("partitioned", [False, True])
def test_closing_is_bounded_however_silent_the_service_is(partitioned: bool) -> None:
    stubborn = Stubborn(MemoryService(), 15.0)
    engine = Engine(stubborn, Settings("memory", request_timeout=0.3))
    run(engine.session())
    client = Client._of(Access(engine))
    client.lock("q").acquire()
    if partitioned:
        stubborn.faults.partition()
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(60)
    closed = not closing.is_alive()
    stubborn.faults.heal()
    eventually(lambda: stubborn.closing is not None)
    assert stubborn.closing is not None
    stubborn.closing.resolve(None)
    for session in stubborn.service.sessions():
        stubborn.service.expire(session)
    assert closed


KEPT = """
client = coordlock.connect("memory://exit")
grant = client.lock("q").acquire()
"""
#: The client is gone before the interpreter's exit, which may be just before.
DROPPED = """
def main():
    client = coordlock.connect("memory://exit")
    grant = client.lock("q").acquire()
main()
"""
DROPPED_BY_ASYNCIO = """
async def main():
    client = await coordlock.connect_async("memory://exit")
    grant = await client.lock("q").acquire()
asyncio.run(main())
"""


@pytest.mark.parametrize("program", [KEPT, DROPPED, DROPPED_BY_ASYNCIO])
def test_a_client_that_was_not_closed_is_closed_at_exit(program: str) -> None:
    done = script(
        "import asyncio, coordlock, coordlock.kernel.access, coordlock_memory.service as s\n"
        # The timers' thread does not run before the exit.
        "coordlock.kernel.access.soon = lambda *_: None\n"
        "ended = s.MemoryService.close\n"
        "s.MemoryService.close = lambda self, id: (ended(self, id), print('closed', id))\n"
        + program
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("closed memory-")


def test_daemon_threads_that_wait_at_the_exit_end_without_a_word() -> None:
    done = script(
        "import coordlock, threading, time\n"
        "client = coordlock.connect('memory://exit')\n"
        "grant = client.lock('q').acquire()\n"
        "calls = (client.lock('q').acquire, client.work_queue('w').take)\n"
        "calls += (lambda: list(client.election('e').observe()),)\n"
        "for call in calls: threading.Thread(target=call, daemon=True).start()\n"
        "time.sleep(0.2)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_silent_service_does_not_keep_the_interpreter_from_exiting() -> None:
    started = time.monotonic()
    done = script(
        "import coordlock\n"
        "client = coordlock.connect('memory://exit')\n"
        "client.lock('q').acquire()\n"
        "client._engine.backend.faults.partition()\n"
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert time.monotonic() - started < 50


# Fork

FORK = """
import os, sys, threading, coordlock

client = coordlock.connect('memory://fork')
grant = client.lock('q').acquire()
transaction = grant.transaction().put('/k', b'')
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    said = []
    for attempt in (client.lock('q').acquire, client.lock('other').try_acquire, client.admin.names,
                    lambda: client.admin.contenders('q'), grant.check, grant.release,
                    client.admin.describe, transaction.commit, lambda: grant.read('/k')):
        try:
            said.append(repr(attempt()))
        except coordlock.errors.ClientClosed as error:
            said.append(str(error).split()[7].strip(":"))
    client.close()
    os.write(write, ' '.join(said).encode())
    sys.exit(0)
_, status = os.waitpid(pid, 0)
print(status, os.getpid(), os.read(read, 10000).decode(), sep='\\n')
grant.check()
transaction.expect('/k', 0).commit()
print(client.admin.contenders('q')[0].token == grant.token, grant.release())
client.close()
"""


def test_a_forked_child_is_refused_and_its_parent_goes_on() -> None:
    done = script(FORK)
    assert done.stderr == ""
    status, parent, said, after = done.stdout.splitlines()
    assert status == "0"
    assert said.split() == [parent] * 9
    assert after == "True True"


# Use from everywhere


# When the service is away


@pytest.fixture
def away() -> Iterator[LockService]:
    with LockService() as service:
        yield service


def status(client: Client) -> ClientStatus:
    return client.state.status


def test_a_client_knows_its_state_without_a_request(away: LockService) -> None:
    lazy, ttl = Client(away.url, ttl=60), timedelta(seconds=60)
    assert lazy.state == ClientState(ClientStatus.NOT_CONNECTED)
    began = datetime.now(UTC)
    with lazy:
        grant = lazy.lock("q").acquire()
        state = lazy.state
        assert state.status is ClientStatus.CONNECTED
        assert state.since is not None
        assert state.deadline is not None
        assert began <= state.since <= datetime.now(UTC)
        assert began + ttl <= state.deadline <= datetime.now(UTC) + ttl
        with away.silent():
            away.advance(44)
            doubt = lazy.state
            assert (doubt.status, grant.state) == (ClientStatus.IN_DOUBT, GrantState.SUSPECT)
            assert doubt.deadline is not None
            assert (doubt.deadline - datetime.now(UTC)).total_seconds() <= 60 - 44
            assert doubt.since is not None
            assert 43 < (datetime.now(UTC) - doubt.since).total_seconds() < 60
            assert "not acknowledged" in doubt.reason
            away.advance(36)
            assert (status(lazy), grant.state) == (ClientStatus.LOST, GrantState.LOST)
            assert "60 s" in lazy.state.reason
        lazy.lock("other", timeout=60).acquire().release()
        assert status(lazy) is ClientStatus.CONNECTED
        with pytest.raises(LockLost):
            grant.check()
        grant.release()
    assert lazy.state == ClientState(ClientStatus.CLOSED)


def test_a_client_of_the_parent_process_has_lost_its_session(client: Client) -> None:
    if (child := os.fork()) == 0:
        os._exit(status(client) is not ClientStatus.LOST)
    assert os.waitpid(child, 0)[1] == 0
    assert status(client) is ClientStatus.CONNECTED


def test_with_fail_fast_the_first_request_finds_the_outage_and_others_are_refused_at_once(
    away: LockService,
) -> None:
    client = away.connect(fail_fast=True, request_timeout=2)
    held = client.lock("held").acquire()
    queue, value = client.work_queue("w"), client.value("/v")
    with away.silent():
        with pytest.raises(BackendUnavailable) as first:
            client.admin.names()
        assert first.value.away is None
        began = time.monotonic()
        with pytest.raises(WaitUnavailable, match=r"no answer for .* fail_fast") as refused:
            client.lock("q").acquire(timeout=60)
        assert refused.value.away is not None
        for request in (
            lambda: client.lock("q").try_acquire(),
            lambda: client.election("e").campaign(timeout=60),
            lambda: queue.put(b"1"),
            lambda: queue.take(timeout=60),
            lambda: value.set(b"1"),
            lambda: client.counter("c").add(1),
            client.admin.names,
            held.verify,
        ):
            with pytest.raises(BackendUnavailable, match="fail_fast"):
                request()
        assert time.monotonic() - began < 15  # each after request_timeout would be 18 s
        assert status(client) is ClientStatus.IN_DOUBT
        assert held.release(timeout=0.01)  # which is sent later
    away.advance(2)
    eventually(lambda: status(client) is ClientStatus.CONNECTED)
    with client.lock("held", timeout=60) as grant:
        assert grant.token > held.token


def test_with_fail_fast_a_connection_that_is_soon_back_is_no_outage(away: LockService) -> None:
    client = away.connect(fail_fast=True)
    session = client._engine.sessions.latest
    assert session is not None
    session.suspect("the connection is gone")
    client.lock("q").acquire(timeout=60).release()
    with away.silent():
        away.advance(2)
        with pytest.raises(WaitUnavailable, match="fail_fast"):
            client.lock("q").acquire(timeout=60)


def test_with_fail_fast_an_election_logs_an_outage_once(
    away: LockService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(election, "CAMPAIGN_PAUSE_S", 0.01)
    client = away.connect(fail_fast=True, request_timeout=0.2)
    running, stop = client.election("e"), coordlock.Cancellation()
    attempts, campaign = list[object](), running._campaign

    def counted(**options: Any) -> Any:
        attempts.append(options)
        return campaign(**options)

    monkeypatch.setattr(running, "_campaign", counted)
    with ThreadPoolExecutor(1) as pool:
        with away.silent():
            with pytest.raises(BackendUnavailable):
                client.admin.names()
            leading = pool.submit(running.run, lambda _: stop.cancel(), cancellation=stop)
            eventually(lambda: len(attempts) > 5)
        away.advance(2)
        leading.result(60)
    log.flush()
    assert caplog.text.count("campaigns again") == 1


def test_with_fail_fast_a_lost_session_is_replaced_though_nothing_asks_for_it(
    away: LockService,
) -> None:
    client = away.connect(fail_fast=True)
    with away.silent():
        away.advance(20)
        with pytest.raises(WaitUnavailable, match="fail_fast"):
            client.lock("q").acquire()
    away.advance(3)
    eventually(lambda: status(client) is ClientStatus.CONNECTED)
    client.lock("q", timeout=60).acquire().release()


def test_with_fail_fast_a_client_that_never_connected_waits_only_once(away: LockService) -> None:
    with Client(away.url, fail_fast=True, connect_timeout=0.2) as client, away.silent():
        with pytest.raises(BackendUnavailable, match="no answer in time"):
            client.admin.names()
        assert status(client) is ClientStatus.NOT_CONNECTED
        assert client.state.since is not None
        with pytest.raises(WaitUnavailable, match="fail_fast"):
            client.lock("q").acquire()


def test_a_request_that_is_impatient_shows_no_outage(away: LockService) -> None:
    client = away.connect(fail_fast=True)
    with away.silent(), pytest.raises(WaitUnavailable, match="no answer in time"):
        client.lock("q").acquire(timeout=0.05)
    client.lock("q", timeout=60).acquire().release()


def test_a_grant_says_how_long_it_was_waited_for(away: LockService) -> None:
    client = away.connect()
    assert 0 <= client.lock("q").acquire().waited < 60  # and dropped: it stays held
    with ThreadPoolExecutor() as pool, away.connect() as other:
        [holder] = client.admin.contenders("q")
        waiting = pool.submit(other.lock("q", timeout=600).acquire)
        eventually(lambda: len(client.admin.contenders("q")) == 2)
        away.advance(7)
        assert client.admin.evict(holder)
        with waiting.result(60) as grant:
            assert 7 <= grant.waited < 60
        client.work_queue("w").put(b"1")
        with other.work_queue("w").take(timeout=60) as item:
            assert 0 <= item.waited < 60
        with other.job("j").run(1) as run:
            assert 0 <= run.waited < 60


# Operators


def test_an_eviction_whose_reply_was_lost_counts(service: Service, client: Client) -> None:
    with service.client() as holder:
        holder.lock("q").acquire()
        [standing] = client.admin.contenders("q")
        backend(client).faults.inject("evict", Fault.LOSE_REPLY)
        assert client.admin.evict(standing) is True
        assert service.size("q") == 0
        assert client.admin.evict(standing) is False


# The interpreter's end

UNFINISHED = """
import asyncio, coordlock
client = coordlock.connect('memory://end')
def steps():
    with client.lock('x'):
        yield
generator = steps()
next(generator)

async def hold():
    async with coordlock.connect_async('memory://end') as client, client.lock('y'):
        await asyncio.get_running_loop().create_future()
coroutine = hold()
loop = asyncio.new_event_loop()
task = loop.create_task(coroutine)
task._log_destroy_pending = False
loop.call_later(0.2, loop.stop)
loop.run_forever()
loop.close()
"""


def test_a_generator_and_a_coroutine_that_never_end_are_dropped_without_a_word() -> None:
    done = script(UNFINISHED)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_coroutine_that_is_dropped_after_its_loop_was_closed_says_nothing() -> None:
    done = script(UNFINISHED + "del task, coroutine\ngenerator.close()\n")
    assert (done.returncode, done.stderr) == (0, "")
