"""The fixtures for pytest, in runs of pytest's own, with and without xdist and pytest-asyncio."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import coordlock
from coordlock import AcquireTimeout, GrantState, LockLost
from coordlock.errors import WaitUnavailable
from coordlock.testing.lock_service import LockService
from coordlock.testing.waiting import eventually


def run(folder: Path, source: str, *options: str) -> str:
    """What pytest prints about the test ``source``."""
    (folder / "conftest.py").write_text('pytest_plugins = ["coordlock.integrations.pytest"]\n')
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith(("COORDLOCK", "PYTEST"))},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return done.stdout + done.stderr


def test_what_a_test_leaves_open_is_closed_without_a_warning(tmp_path: Path) -> None:
    source = """
import asyncio, threading, coordlock, pytest

@pytest.fixture(autouse=True)
def no_threads_are_left():
    yield
    left = {thread.name for thread in threading.enumerate()}
    assert left <= {"MainThread", "coordlock-log"}

def test_sync(no_threads_are_left, lock_client):
    global grant, client
    grant = lock_client.lock("x").acquire()
    client = coordlock.connect()  # configured by the service's variable
    assert client.lock("x").try_acquire() is None

def test_async(async_lock_client):
    async def main():
        global held
        held = await async_lock_client.lock("x").acquire()
    asyncio.run(main())
"""
    assert "2 passed" in run(tmp_path, source)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_made_once_per_run_is_made_by_one_worker(tmp_path: Path, workers: str) -> None:
    made = tmp_path / "made"
    source = f"""
import os, pytest

@pytest.fixture(scope="session")
def database(once_per_run):
    def create():
        with open({str(made)!r}, "a") as file:
            file.write("created\\n")
        return {{"name": "test"}}
    return once_per_run("database", create)

@pytest.mark.parametrize("number", range(9))
def test_it(number, database):
    assert database == {{"name": "test"}}
"""
    assert "9 passed" in run(tmp_path, source, "-n", workers)
    assert made.read_text() == "created\n"


def test_a_worker_that_dies_lets_the_next_one_make_it(tmp_path: Path) -> None:
    made = tmp_path / "made"
    source = f"""
import os, pathlib, pytest

@pytest.fixture(scope="session")
def database(once_per_run):
    def create():
        made = pathlib.Path({str(made)!r})
        if not made.exists():
            made.touch()
            os.kill(os.getpid(), 9)
        return "made by the next"
    return once_per_run("database", create)

@pytest.mark.parametrize("number", range(4))
def test_it(number, database):
    assert database == "made by the next"
"""
    assert "1 failed, 3 passed" in run(tmp_path, source, "-n", "2")


IN_ASYNC_FIXTURES = """
import contextlib

import coordlock
import pytest
import pytest_asyncio


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client():
    async with coordlock.connect_async("memory://fixtures") as client:
        yield client
        assert await client.admin.names() == []


@pytest_asyncio.fixture(loop_scope="module")
async def grant(client):
    async with client.lock("one", timeout=60) as grant:
        yield grant


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def readers(client):
    lock = client.read_lock("many")
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(lock) for _ in range(3)]


@pytest.fixture(scope="module")
def held():
    with coordlock.connect("memory://fixtures") as client, client.lock("sync") as grant:
        yield grant


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("number", range(3))
async def test_a_fixture_holds_a_lock(grant, held, readers, number):
    for one in (grant, held, *readers):
        one.check()
"""


def test_fixtures_of_pytest_asyncio_hold_locks_and_are_left_in_tasks_of_their_own(
    tmp_path: Path,
) -> None:
    assert "3 passed" in run(tmp_path, IN_ASYNC_FIXTURES, "-p", "no:xdist")


# The service


def test_an_hour_passes_at_once_and_heartbeats_go_on(
    lock_service: LockService, lock_client: coordlock.Client
) -> None:
    begun = time.monotonic()
    grant = lock_client.lock("report").acquire()
    limited = lock_client.lock("limited", max_hold="30m").acquire()
    lock_service.advance("29m")
    assert (grant.state, limited.state) == (GrantState.HELD, GrantState.HELD)
    lock_service.advance("31m")
    assert (grant.state, limited.state) == (GrantState.HELD, GrantState.LOST)
    assert time.monotonic() - begun < 30


def test_a_thread_that_waits_notices_at_once_that_its_time_is_over(
    lock_service: LockService, lock_client: coordlock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlock.runtime.driver._LONGEST_WAIT_S", 600.0)
    with lock_service.held("report"), ThreadPoolExecutor() as pool:
        waiting = pool.submit(lock_client.lock("report", timeout=600).acquire)
        eventually(lambda: len(lock_client.admin.contenders("report")) == 2)
        lock_service.advance(599)
        assert not waiting.done()
        begun = time.monotonic()
        lock_service.advance(1)
        assert isinstance(waiting.exception(60), AcquireTimeout)
        assert time.monotonic() - begun < 30  # before its driver would look at the clock


def test_a_lock_is_lost_now_and_its_owner_can_acquire_it_again(
    lock_service: LockService, lock_client: coordlock.Client
) -> None:
    with pytest.raises(LookupError, match="nobody holds 'report'"):
        lock_service.lose("report")
    called = threading.Event()
    grant = lock_client.lock("report").acquire()
    grant.on_lost(lambda one: called.set() if one is grant else None)
    lock_service.lose("report")
    with pytest.raises(LockLost, match="expired"):
        grant.check()
    assert called.wait(60)
    lock_client.lock("report", timeout=60).acquire().check()


def test_a_silent_service_answers_nobody_until_the_session_is_lost(
    lock_service: LockService, lock_client: coordlock.Client
) -> None:
    grant = lock_client.lock("report").acquire()
    with lock_service.silent():
        with pytest.raises(WaitUnavailable):
            lock_client.lock("other").acquire(timeout=0.05)
        with pytest.raises(coordlock.BackendUnavailable):
            lock_service.connect(connect_timeout=0.1)
        grant.check()
        lock_service.advance(lock_client.settings.ttl)
        assert grant.state is GrantState.LOST
    lock_client.lock("report", timeout=60).acquire().check()


def test_another_client_holds_a_lock_for_a_block(
    lock_service: LockService, lock_client: coordlock.Client
) -> None:
    with lock_service.held("report", coordlock.Mode.PR):
        assert lock_client.lock("report").try_acquire() is None
        lock_client.read_lock("report").acquire().check()
        with pytest.raises(AcquireTimeout), lock_service.held("report"):
            raise AssertionError


module_client = coordlock.Client("etcd://nowhere.invalid/service", timeout=0)


@module_client.lock("decorated")
def decorated() -> int:
    return len(module_client.admin.contenders("decorated"))


def test_a_client_at_the_top_of_a_module_is_served(
    lock_service: LockService, lock_client: coordlock.Client
) -> None:
    with lock_service.serve(module_client):
        assert decorated() == 1
        with lock_service.held("decorated"), pytest.raises(AcquireTimeout):
            decorated()
    with pytest.raises(TypeError, match="its class"), lock_service.serve(lock_client):
        raise AssertionError
