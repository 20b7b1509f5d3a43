"""The fixtures that coordlock gives to pytest, in runs of pytest's own, with and without xdist."""

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
    """What pytest prints about the test ``source``, which passes."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:asyncio", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith(("COORDLOCK", "PYTEST"))},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_a_test_that_asks_for_it_nothing_of_coordlock_is_imported(tmp_path: Path) -> None:
    source = """
import sys

def test_nothing():
    loaded = {name for name in sys.modules if name.partition(".")[0].startswith("coordlock")}
    assert loaded == {"coordlock", "coordlock.integrations", "coordlock.integrations.pytest"}
"""
    run(tmp_path, source)


def test_the_fixtures_are_listed_with_what_they_are(tmp_path: Path) -> None:
    listed = run(tmp_path, "def test_nothing(): pass", "--fixtures")
    for fixture in ("async_lock_client", "lock_client", "lock_service", "once_per_run"):
        assert f"{fixture}" in listed
    assert "A lock service of this test's own" in listed


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
    run(tmp_path, source)


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
    run(tmp_path, source, "-n", workers)
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
    (tmp_path / "test_it.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:asyncio", "-n", "2", str(tmp_path)],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith(("COORDLOCK", "PYTEST"))},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr


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
    lock_service: LockService, lock_client: coordlock.Client
) -> None:
    with lock_service.held("report"), ThreadPoolExecutor() as pool:
        waiting = pool.submit(lock_client.lock("report", timeout=600).acquire)
        eventually(lambda: len(lock_client.admin.contenders("report")) == 2)
        lock_service.advance(599)
        assert not waiting.done()
        begun = time.monotonic()
        lock_service.advance(1)
        assert isinstance(waiting.exception(60), AcquireTimeout)
        assert time.monotonic() - begun < 4  # drivers look at their clock each 5 s


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
