"""Failovers to a standby that lags, crashes, pauses, and a wall clock that jumps."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from coordlock_postgresql.schema import set_up

import coordlock
from coordlock.backend.config import configure
from coordlock.client.state import ClientStatus
from coordlock.errors import BackendError, CoordlockError, LockLost, SessionLost, StaleToken
from coordlock.fencing import MemoryFence
from coordlock.testing.waiting import eventually
from testbed.servers.endpoint import Endpoint
from testbed.servers.postgres import PostgresServer, PostgresStandby
from testbed.systems.wall_clocks import WallClock

pytestmark = [pytest.mark.postgres, pytest.mark.faults, pytest.mark.usefixtures("no_leaks")]

PAUSE: float = 5
ENDING = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'coordlock'"
)
BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'coordlock'"


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path / "primary", replicates=True) as primary:
        primary.set_up()
        yield primary


@pytest.fixture
def short_pause(primary: PostgresServer) -> None:
    """Grants come soon after a failover."""
    with primary.administrator() as admin:
        admin.execute(f"UPDATE coordlock.epoch SET pause = '{PAUSE} s'".encode())


def both(*servers: PostgresServer, **options: object) -> str:
    hosts = tuple(f"{server.host}:{server.port}" for server in servers)
    return Endpoint("postgresql", hosts, servers[0].USER).url("/postgres/failover", **options)


def granted(client: coordlock.Client, name: str, into: list[int]) -> threading.Thread:
    """Acquire in a thread, and append the token."""

    def acquire() -> None:
        into.append(client.lock(name).acquire(timeout=90).token)

    thread = threading.Thread(target=acquire)
    thread.start()
    return thread


@pytest.mark.usefixtures("short_pause")
def test_a_failover_to_a_lagging_standby_ends_all_grants_and_repeats_no_token(
    primary: PostgresServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        standby = stack.enter_context(PostgresStandby(tmp_path / "standby", primary))
        url = both(primary, standby, ttl=f"{PAUSE:g}s", request_timeout="2s")
        one, two, late = (stack.enter_context(coordlock.connect(url)) for _ in range(3))
        known = [one.lock(f"known{number}").acquire() for number in range(5)]
        standby.catch_up()
        standby.lag()
        # The standby knows nothing of these, and shows again what has been released.
        unknown = [one.lock(f"unknown{number}").acquire() for number in range(5)]
        known.pop().release()
        unknown.append(two.lock("known4").acquire())
        primary.kill()
        standby.promote()

        program = stack.enter_context(psycopg.connect(standby.uri()))
        with pytest.raises(LockLost):
            known[0].guard(program)
        program.rollback()

        promoted = time.monotonic()
        tokens: list[int] = []
        names = [*(f"known{number}" for number in range(5))]
        names += (f"unknown{number}" for number in range(5))
        waiters = [granted(late, name, tokens) for name in names]
        for grant in (*known, *unknown):
            assert grant.lost.wait(PAUSE * 2)
            with pytest.raises(LockLost):
                grant.check()
        lost = time.monotonic()
        assert not tokens
        for waiter in waiters:
            waiter.join()
        assert time.monotonic() - promoted > PAUSE * 0.9
        assert lost - promoted < PAUSE
        before = {grant.token for grant in (*known, *unknown)}
        assert min(tokens) > max(before)
        fence = MemoryFence()
        fence.check("data", min(tokens))
        with pytest.raises(StaleToken):
            fence.check("data", max(before))


@pytest.mark.usefixtures("short_pause")
def test_who_waits_during_a_failover_is_not_granted_by_the_old_place(
    primary: PostgresServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        standby = stack.enter_context(PostgresStandby(tmp_path / "standby", primary))
        url = both(primary, standby, ttl=f"{PAUSE:g}s", request_timeout="2s")
        one, two = (stack.enter_context(coordlock.connect(url)) for _ in range(2))
        holder = one.lock("a").acquire()
        failures: list[BaseException] = []

        def wait() -> None:
            with pytest.raises(SessionLost) as failure:
                two.lock("a").acquire(timeout=60)
            failures.append(failure.value)

        waiter = threading.Thread(target=wait)
        waiter.start()
        eventually(lambda: len(one.admin.contenders("a")) == 2)
        standby.catch_up()
        primary.kill()
        standby.promote()
        waiter.join()
        assert failures
        with two.lock("a").acquire(timeout=60) as later:
            assert later.token >> 39 > holder.token >> 39


@pytest.mark.long
@pytest.mark.usefixtures("short_pause")
def test_an_old_primary_without_its_synchronous_standby_ends_grants_before_the_new_one_gives_them(
    primary: PostgresServer, tmp_path: Path
) -> None:
    options = {"ttl": f"{PAUSE:g}s", "request_timeout": "1s"}
    with ExitStack() as stack:
        standby = stack.enter_context(PostgresStandby(tmp_path / "standby", primary))
        with pytest.raises(BackendError, match="standby"):
            coordlock.connect(standby.url_for("/two"))
        primary.set("synchronous_standby_names", PostgresStandby.NAME)
        one, waiting = (
            stack.enter_context(coordlock.connect(primary.url_for("/two", **options)))
            for _ in range(2)
        )
        held, released = one.lock("a").acquire(), one.lock("b").acquire()
        pool = stack.enter_context(ThreadPoolExecutor(3))
        standby.promote()
        releasing = pool.submit(released.release)
        waits = [pool.submit(waiting.lock(name).acquire, timeout=20) for name in "ab"]
        two = stack.enter_context(coordlock.connect(standby.url_for("/two", **options)))
        with two.lock("a").acquire(timeout=60) as later:
            assert held.lost.is_set()
            assert later.token > held.token
        releasing.result()
        for each in waits:
            assert isinstance(each.exception(), CoordlockError)
        # What clients give up there does not take all connections.
        with primary.administrator() as admin:
            [(taken,)] = admin.execute(BACKENDS).fetchall()
            assert taken < 20
            admin.execute(ENDING)


def test_a_synchronous_standby_that_comes_back_ends_an_outage(
    primary: PostgresServer, tmp_path: Path
) -> None:
    url = primary.url_for("/outage", ttl="15s", request_timeout="1s")
    with ExitStack() as stack:
        standby = stack.enter_context(PostgresStandby(tmp_path / "standby", primary))
        primary.set("synchronous_standby_names", PostgresStandby.NAME)
        one, two = (stack.enter_context(coordlock.connect(url)) for _ in range(2))
        kept, released = one.lock("kept").acquire(), one.lock("b").acquire()
        pool = stack.enter_context(ThreadPoolExecutor(2))
        standby.pause()
        releasing = pool.submit(released.release)
        waiter = pool.submit(two.lock("b").acquire, timeout=60)
        eventually(lambda: one.state.status is ClientStatus.IN_DOUBT, within=30)
        standby.resume()
        with waiter.result() as later:
            assert later.token > released.token
        releasing.result()
        kept.check()


@pytest.mark.usefixtures("short_pause")
def test_a_dump_that_is_restored_knows_no_grant_and_repeats_no_token(
    primary: PostgresServer,
) -> None:
    url = primary.url_for("/dump", ttl=f"{PAUSE:g}s")
    copy = url.replace("/postgres/", "/copy/")
    with coordlock.connect(url) as client:
        held = client.lock("a").acquire()
        held.transaction().put("/app/kept", b"1").commit()
        dump = subprocess.run(["pg_dump", primary.uri()], capture_output=True, check=False)
        if b"version mismatch" in dump.stderr:
            pytest.skip("the pg_dump on the path is older than the server")
        held.transaction().put("/app/kept", b"2").commit()
        newest = client.lock("b").acquire()
        with primary.administrator() as admin:
            admin.execute("CREATE DATABASE copy")
        restore = ["psql", "-qv", "ON_ERROR_STOP=1", primary.uri("copy")]
        subprocess.run(restore, input=dump.stdout, capture_output=True, check=True)
        with coordlock.connect(copy) as later, later.lock("a").acquire(timeout=60) as grant:
            assert grant.token > newest.token
            kept = grant.read("/app/kept")
            assert kept is not None
            assert kept.data == b"1"
        held.check()
        # A copy of the server's files can't be recognised: the operator says so.
        set_up(configure(url), restored=True)
        assert held.lost.wait(PAUSE * 2)
        with client.lock("a").acquire(timeout=60) as restored:
            assert restored.token > newest.token


def test_locks_outlive_a_killed_server_that_comes_back(primary: PostgresServer) -> None:
    url = primary.url_for("/killed", ttl="30s", request_timeout="2s")
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        grants = [one.lock(f"a{number}").acquire() for number in range(20)]
        tokens: list[int] = []
        waiter = granted(two, "a0", tokens)
        eventually(lambda: len(one.admin.contenders("a0")) == 2)
        primary.kill()
        primary.start()
        eventually(lambda: len(one.admin.contenders("a0")) == 2, within=20)
        for grant in grants:
            grant.check()
            grant.release()
        waiter.join()
        assert tokens[0] > max(grant.token for grant in grants)


def test_a_server_that_stands_still_ends_grants_at_their_deadline(primary: PostgresServer) -> None:
    url = primary.url_for("/paused", ttl="3s", request_timeout="1s")
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        short = one.lock("a").acquire()
        primary.pause()
        with pytest.raises(CoordlockError):
            two.lock("b").acquire(timeout=1)
        assert short.lost.wait(6)
        primary.resume()
        with two.lock("a").acquire(timeout=30) as later:
            assert later.token > short.token


@pytest.mark.parametrize("step", [30, 7200, -7200])
def test_a_wall_clock_of_the_server_that_jumps_ends_no_lock(step: int) -> None:
    # A directory that the server's user can enter.
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        clock = WallClock(Path(directory) / "clock")
        with PostgresServer(Path(directory) / "server", environment=clock.environment) as server:
            server.set_up()
            url = server.url_for("/clock", ttl="3s")
            with (
                coordlock.connect(url) as one,
                coordlock.connect(url) as two,
                coordlock.connect(server.url_for("/clock", ttl="60s")) as idle,
            ):
                held = one.lock("a").acquire()
                tokens: list[int] = []
                waiter = granted(two, "a", tokens)
                eventually(lambda: len(one.admin.contenders("a")) == 2)
                clock.set(step)
                with server.administrator() as admin:
                    shown = "SELECT abs(extract(epoch FROM clock_timestamp()) - %s) < 9"
                    eventually(
                        lambda: admin.execute(shown, (time.time() + step,)).fetchone() == (True,)
                    )
                assert idle.lock("b").try_acquire() is not None
                time.sleep(5)  # more than the ttl
                held.check()
                assert not tokens
                held.release()
                waiter.join()
                assert tokens[0] > held.token
