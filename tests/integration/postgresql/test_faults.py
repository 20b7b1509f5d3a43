"""PgBouncer in each mode, broken links, a server without free connections, and open snapshots."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import psycopg
import pytest
from coordlock_postgresql.schema import set_up

import coordlock
from coordlock.backend.config import configure
from coordlock.errors import BackendError, BackendUnavailable
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.ports import free_port
from testbed.servers.postgres import PgBouncer, Postgres, PostgresServer
from tests.integration.postgresql.conftest import Admin, excludes, through, url_in

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("no_leaks")]


@pytest.mark.pgbouncer
@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
def test_locks_work_behind_pgbouncer(
    postgresql: Postgres, tmp_path: Path, root: str, mode: str
) -> None:
    with PgBouncer(tmp_path, postgresql, mode) as pooler:
        excludes(pooler.url_for(root))
        # More clients than the pool has connections, where they need none of their own.
        count = 4 if mode == "session" else 15
        url = pooler.url_for(root, listen="off")
        held, overlaps = 0, 0
        order: list[int] = []

        def work() -> None:
            nonlocal held, overlaps
            with coordlock.connect(url) as client:
                for _ in range(3):
                    with client.lock("many").acquire(timeout=60) as grant:
                        held += 1
                        overlaps += held > 1
                        order.append(grant.token)
                        held -= 1

        workers = [threading.Thread(target=work) for _ in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not overlaps
        assert len(order) == 3 * count
        assert order == sorted(set(order))


@pytest.mark.pgbouncer
def test_a_client_that_a_pooler_keeps_from_being_notified_says_so_once_and_listens_past_it(
    postgresql: Postgres, tmp_path: Path, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    with PgBouncer(tmp_path, postgresql, "transaction") as pooler:
        # After a failover another server is the primary.
        listen = f"127.0.0.1:{free_port()},{postgresql.host}:{postgresql.port}"
        excludes(pooler.url_for(root, listen=listen))
        assert "pooler" not in caplog.text
        with coordlock.connect(pooler.url_for(root)) as client:
            assert "listen=host:port" in str(client.admin.describe().warnings)
            time.sleep(3)  # it tries whether anything arrives every two seconds
        assert caplog.text.count("pooler") == 1


def test_a_slow_link_costs_time_alone(postgresql: Postgres, proxy: FaultProxy, root: str) -> None:
    proxy.delay(0.1)
    excludes(through(proxy, postgresql, root, ttl="10s"))


def test_links_that_break_again_and_again_lose_no_wake_up(
    postgresql: Postgres, proxy: FaultProxy, root: str
) -> None:
    url = through(proxy, postgresql, root, ttl="30s")
    stop = threading.Event()

    def cut() -> None:
        while not stop.wait(0.3):
            proxy.drop_connections()

    with coordlock.connect(url) as one, coordlock.connect(postgresql.url_for(root)) as two:
        cutter = threading.Thread(target=cut)
        cutter.start()
        try:
            tokens = []
            for number in range(20):
                with (one, two)[number % 2].lock("a").acquire(timeout=30) as grant:
                    tokens.append(grant.token)
        finally:
            stop.set()
            cutter.join()
        assert tokens == sorted(set(tokens))
        eventually(lambda: not two.admin.contenders("a"), within=30)


def test_an_idle_client_is_notified_again_after_all_its_connections_were_ended(
    postgresql: Postgres, root: str
) -> None:
    url = postgresql.url_for(root, ttl="30s", application_name=root[1:])
    found = "FROM pg_stat_activity WHERE application_name = %s"
    with coordlock.connect(url) as client, postgresql.administrator() as admin:

        def listening() -> set[object]:
            query = f"SELECT pid {found} AND query LIKE 'LISTEN%%'".encode()
            return set(admin.execute(query, (root[1:],)))

        eventually(listening)
        eventually(lambda: "connection" not in str(client.admin.describe().warnings))
        before = listening()
        admin.execute(f"SELECT pg_terminate_backend(pid) {found}".encode(), (root[1:],))
        eventually(lambda: listening() - before)
        eventually(lambda: "connection" not in str(client.admin.describe().warnings), within=20)


#: What stops a request in a step, and what makes the request.
STEPS: Final = {
    "acquire": "SELECT FROM coordlock.queue FOR UPDATE",
    "acquire, notifying": "LOCK coordlock.follower",
    "release": "LOCK coordlock.contender IN EXCLUSIVE MODE",
    "release, notifying": "LOCK coordlock.follower",
    "heartbeat": "SELECT FROM coordlock.session FOR UPDATE",
    "listen": "SELECT",
}


@pytest.mark.parametrize("step", STEPS)
def test_a_connection_that_ends_in_a_step_of_a_request_costs_no_lock(
    postgresql: Postgres, root: str, step: str
) -> None:
    url = postgresql.url_for(root, ttl="15s")
    where = "query LIKE 'LISTEN%'" if step == "listen" else "wait_event_type = 'Lock'"
    ending = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE application_name = 'coordlock' AND {where}"
    ).encode()
    with (
        coordlock.connect(url) as one,
        coordlock.connect(url) as two,
        ThreadPoolExecutor(2) as pool,
        postgresql.administrator() as other,
        postgresql.administrator() as admin,
    ):
        held = one.lock("a").acquire()
        wait = partial(pool.submit, two.lock("a").acquire, timeout=60)
        with other.transaction():
            waiter = wait() if step.startswith(("release", "listen")) else None
            if waiter is not None:
                eventually(lambda: len(one.admin.contenders("a")) == 2)
            other.execute(STEPS[step].encode())
            release = pool.submit(held.release) if step.startswith("release") else None
            waiter = waiter or wait()
            eventually(lambda: admin.execute(ending).fetchall(), within=20)
        if release is not None:
            release.result(60)
        else:
            held.check()
            held.release()
        with waiter.result(60) as later:
            assert later.token > held.token
        eventually(lambda: not one.admin.contenders("a"), within=20)


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_what_the_server_rolls_back_is_repeated(
    postgresql: Postgres, database: str, state: str
) -> None:
    url = url_in(postgresql, database)
    set_up(configure(url))
    with postgresql.administrator(database) as admin:
        # A sequence goes on after a rollback.
        admin.execute("CREATE SEQUENCE attempt")
        admin.execute(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF nextval('public.attempt') <= 3 THEN "
            f"RAISE 'not now' USING ERRCODE = '{state}'; END IF; RETURN NEW; END $$".encode()
        )
        admin.execute(
            "CREATE TRIGGER fail BEFORE INSERT ON coordlock.contender "
            "FOR EACH ROW EXECUTE FUNCTION fail()"
        )
        with coordlock.connect(url) as client, client.lock("a"):
            assert admin.execute("SELECT last_value FROM attempt").fetchone() == (4,)


def test_a_full_disk_is_named_and_costs_no_lock(postgresql: Postgres, root: str) -> None:
    if os.geteuid() != 0 or not isinstance(postgresql, PostgresServer):
        pytest.skip("only root may mount a small file system, for a server of this machine")
    with small_disk(postgresql.data.stat()) as disk, postgresql.administrator() as admin:
        admin.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
        admin.execute("CREATE DATABASE small TABLESPACE small")
        url = postgresql.url_for(root, ttl="30s").replace("/postgres/", "/small/")
        try:
            set_up(configure(url))
            with coordlock.connect(url) as client:
                held = client.lock("a").acquire()
                fill = disk / "fill"
                with suppress(OSError), fill.open("wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))
                filling = (client.lock(f"b{number}").acquire(timeout=2) for number in range(5000))
                with pytest.raises(BackendError, match="the server's disk is full"):
                    list(filling)
                fill.unlink()
                held.check()
                with client.lock("c").acquire(timeout=30) as later:
                    assert later.token > held.token
                held.release()
        finally:
            admin.execute("DROP DATABASE small WITH (FORCE)")
            admin.execute("DROP TABLESPACE small")


@contextmanager
def small_disk(owner: os.stat_result) -> Iterator[Path]:
    """A file system of 24 MB that the ``owner`` of the server's data may write to."""
    with tempfile.TemporaryDirectory() as directory:
        mount = Path(directory) / "disk"
        mount.mkdir()
        Path(directory).chmod(0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", mount], check=True)
        try:
            os.chown(mount, owner.st_uid, owner.st_gid)
            yield mount
        finally:
            subprocess.run(["umount", mount], check=True)


def test_a_server_without_a_free_connection_is_named_and_costs_no_lock(
    tmp_path: Path, root: str
) -> None:
    with PostgresServer(tmp_path / "small", max_connections=12) as server:
        server.set_up()
        others: list[psycopg.Connection[Any]] = []
        with server.administrator() as admin:
            admin.execute("CREATE ROLE app LOGIN")
            admin.execute("GRANT USAGE ON SCHEMA coordlock TO app")
        url = server.url_for(root, request_timeout="2s", connect_timeout="3s").replace(
            server.USER, "app", 1
        )
        with coordlock.connect(url) as client:
            held = client.lock("a").acquire()
            other = server.uri(user="app")
            try:
                with suppress(psycopg.OperationalError):
                    while True:
                        others.append(psycopg.connect(other))
                with pytest.raises(BackendUnavailable, match=r"connection slots|too many clients"):
                    coordlock.connect(url)
            finally:
                for each in others:
                    each.close()
            held.check()
            with coordlock.connect(url) as later:
                assert later.lock("a").try_acquire() is None
            held.release()


#: Acquires and releases, without a network and the client's part.
PAIRS: Final = """
DO $$ DECLARE
    answer json;
    entry text := '{{"name": "a", "id": "%s", "claim": "lock", "owner": "", '
        '"value": "", "nearest": 1}}';
    enqueue text := '{{"root": "{root}", "caller": "", "session": "{session}", '
        '"entries": [' || entry || ']}}';
    withdraw text := '{{"caller": "", "contenders": [{{"session": "{session}", "id": "%s"}}]}}';
BEGIN
    FOR i IN 1 .. {pairs} LOOP
        CALL coordlock.request('enqueue', format(enqueue, i)::jsonb, answer);
        CALL coordlock.request('withdraw', format(withdraw, i)::jsonb, answer);
    END LOOP;
END $$
"""


@pytest.mark.parametrize("pairs", [600, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_snapshot_that_stays_open_makes_no_queue_slow(
    postgresql: Postgres, root: str, admin: Admin, pairs: int
) -> None:
    url = postgresql.url_for(root, ttl="30s")
    with (
        coordlock.connect(url) as client,
        coordlock.connect(url) as fresh,
        postgresql.administrator() as old,
    ):
        with client.lock("a"):
            [contender] = client.admin.contenders("a")
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM coordlock.contender")
        given = {"pairs": pairs, "root": root, "session": contender.session}
        admin.execute(PAIRS.format(**given).encode())
        found = admin.execute(
            "SELECT floor > 0, (SELECT last_value FROM coordlock.token) "
            "- (floor & ((1::bigint << 39) - 1)) FROM coordlock.queue WHERE root = %s",
            (root,),
        ).fetchone()
        assert found is not None
        has_floor, dead = found
        assert has_floor
        # So many dead contenders are read at most.
        assert dead <= 420
        # By turns with a queue and a session that have no dead rows.
        seconds: dict[str, list[float]] = {"a": [], "b": []}
        for _ in range(100):
            for name, each in (("a", client), ("b", fresh)):
                began = time.perf_counter()
                each.lock(name).acquire().release()
                seconds[name].append(time.perf_counter() - began)
        assert median(seconds["a"]) <= 2 * median(seconds["b"])
