"""A grant as a part of the program's own transaction, in the database that has the locks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from coordlock_postgresql.schema import set_up
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import coordlock
from coordlock.backend.config import configure
from coordlock.errors import BackendError, LockLost, Unsupported
from coordlock.testing.waiting import eventually
from testbed.servers.postgres import Postgres
from tests.integration.postgresql.conftest import Admin, url_in

pytestmark = [pytest.mark.postgres]


@pytest.fixture
def url(postgresql: Postgres, root: str) -> str:
    return postgresql.url_for(root)


@pytest.fixture
def own(postgresql: Postgres) -> Iterator[Admin]:
    """The program's own connection."""
    with postgresql.administrator() as own:
        own.autocommit = False
        yield own


def granted(client: coordlock.Client, name: str) -> threading.Event:
    """Set once another client has the lock."""
    event = threading.Event()

    def wait() -> None:
        client.lock(name).acquire(timeout=30)
        event.set()

    threading.Thread(target=wait).start()
    return event


@contextmanager
def program(postgresql: Postgres, kind: str) -> Iterator[Any]:
    """A connection of the program's own."""
    if kind == "psycopg":
        with psycopg.connect(postgresql.uri()) as own:
            yield own
        return
    engine = create_engine(postgresql.url)
    with engine.connect() if kind == "connection" else Session(engine) as own:
        yield own
    engine.dispose()


@asynccontextmanager
async def async_program(postgresql: Postgres, kind: str) -> AsyncIterator[Any]:
    """The same for asyncio."""
    if kind == "psycopg":
        async with await psycopg.AsyncConnection.connect(postgresql.uri()) as own:
            yield own
        return
    engine = create_async_engine(postgresql.url)
    async with engine.connect() if kind == "connection" else AsyncSession(engine) as own:
        yield own
    await engine.dispose()


def leave(postgresql: Postgres) -> None:
    """Remove all contenders, so that their clients do not know."""
    with postgresql.administrator() as admin:
        admin.execute("DELETE FROM coordlock.contender")


KINDS = pytest.mark.parametrize("kind", ["psycopg", "connection", "session"])
ENDS = pytest.mark.parametrize("end", ["commit", "rollback"])


@KINDS
@ENDS
def test_a_guarded_lock_is_granted_to_nobody_before_the_end_of_the_transaction(
    postgresql: Postgres, url: str, kind: str, end: str
) -> None:
    with (
        coordlock.connect(url) as one,
        coordlock.connect(url) as two,
        program(postgresql, kind) as own,
    ):
        grant = one.lock("a").acquire()
        grant.guard(own)
        other = granted(two, "a")
        began = time.monotonic()
        assert grant.release()
        assert time.monotonic() - began < 5
        assert not other.wait(1)
        getattr(own, end)()
        assert other.wait(10)


@KINDS
@ENDS
def test_with_asyncio_a_guarded_lock_is_granted_to_nobody_before_the_end_of_the_transaction(
    postgresql: Postgres, url: str, kind: str, end: str
) -> None:
    async def main() -> None:
        async with (
            coordlock.connect_async(url) as one,
            coordlock.connect_async(url) as two,
            async_program(postgresql, kind) as own,
        ):
            grant = await one.lock("a").acquire()
            await grant.guard(own)
            other = asyncio.create_task(two.lock("a").acquire(timeout=30))
            began = time.monotonic()
            assert await grant.release()
            assert time.monotonic() - began < 5
            assert not (await asyncio.wait([other], timeout=1))[0]
            await getattr(own, end)()
            await (await other).release()

    asyncio.run(main())


@KINDS
def test_a_transaction_that_releases_ends_the_lock(
    postgresql: Postgres, url: str, kind: str
) -> None:
    async def main() -> None:
        async with (
            coordlock.connect_async(url) as one,
            coordlock.connect_async(url) as two,
            async_program(postgresql, kind) as own,
        ):
            grant = await one.lock("a").acquire()
            await asyncio.wait_for(grant.release_with(own), 60)  # and not until own has committed
            assert await two.lock("a").try_acquire() is None
            await own.commit()
            await two.lock("a").acquire(timeout=10)

    asyncio.run(main())


@KINDS
def test_a_grant_whose_contender_has_left_cannot_be_guarded(
    postgresql: Postgres, url: str, kind: str
) -> None:
    async def main() -> None:
        async with (
            coordlock.connect_async(url) as client,
            async_program(postgresql, kind) as own,
        ):
            grant = await client.lock("a").acquire()
            leave(postgresql)
            grant.check()
            with pytest.raises(LockLost):
                await grant.guard(own)

    with coordlock.connect(url) as client, program(postgresql, kind) as own:
        grant = client.lock("a").acquire()
        leave(postgresql)
        grant.check()
        with pytest.raises(LockLost):
            grant.guard(own)
    asyncio.run(main())


@pytest.mark.parametrize("has_schema", [False, True])
def test_another_database_is_refused_and_its_transaction_goes_on(
    postgresql: Postgres, url: str, database: str, has_schema: bool
) -> None:
    if has_schema:
        set_up(configure(url_in(postgresql, database)))
    with coordlock.connect(url) as client, client.lock("a") as grant:
        with postgresql.administrator(database) as other, other.transaction():
            for method in (grant.guard, grant.release_with):
                with pytest.raises(Unsupported, match="another database than the one with"):
                    method(other)
            other.execute("SELECT 1")
        grant.check()


def test_an_eviction_names_a_transaction_that_guards(
    postgresql: Postgres, url: str, own: Admin
) -> None:
    with coordlock.connect(url) as client, postgresql.administrator() as other:
        grant = client.lock("a").acquire()
        grant.guard(own)
        [contender] = client.admin.contenders("a")
        with pytest.raises(BackendError, match=rf"terminate_backend\({own.info.backend_pid}\)"):
            client.admin.evict(contender)
        with other.transaction():
            grant.guard(other)
            pids = f"{own.info.backend_pid}|{other.info.backend_pid}"
            with pytest.raises(BackendError, match=rf"terminate_backend\(({pids})\)"):
                client.admin.evict(contender)
        own.rollback()


def test_an_eviction_names_no_process_of_another_database(
    postgresql: Postgres, url: str, database: str, own: Admin
) -> None:
    with coordlock.connect(url) as client, postgresql.administrator(database) as other:
        grant = client.lock("a").acquire()
        other.execute("SELECT pg_advisory_lock_shared(%s)", (grant.token,))
        own.execute("SELECT FROM coordlock.contender FOR KEY SHARE")
        [contender] = client.admin.contenders("a")
        with pytest.raises(BackendError, match="guards the contender") as refused:
            client.admin.evict(contender)
        assert "terminate" not in str(refused.value)
        own.rollback()


def test_a_guard_waits_for_no_advisory_lock_of_the_program(
    postgresql: Postgres, url: str, own: Admin
) -> None:
    with coordlock.connect(url) as client, postgresql.administrator() as other:
        grant = client.lock("a").acquire()
        other.execute("SELECT pg_advisory_lock(%s)", (grant.token,))
        own.execute("SET lock_timeout = '2s'")
        grant.guard(own)
        own.rollback()


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_lock_ends_with_the_transaction_that_releases_it(url: str, own: Admin, ends: str) -> None:
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        with one.lock("a") as grant:
            other = granted(two, "a")
            grant.release_with(own)
        assert not other.wait(1)
        getattr(own, ends)()
        began = time.monotonic()
        assert other.wait(10)
        assert time.monotonic() - began < 3


def test_a_lock_ends_with_the_commit_though_its_client_is_gone(url: str, own: Admin) -> None:
    with coordlock.connect(url) as two:
        one = coordlock.connect(url)
        one.lock("a").acquire().release_with(own)
        one.close()
        assert two.lock("a").try_acquire() is None
        own.commit()
        two.lock("a").acquire(timeout=10)


#: Holds a lock, guards it, and does something in the transaction.
HOLDER = """
import sys, coordlock, psycopg
url, uri, query = sys.argv[1:]
own = psycopg.connect(uri)
grant = coordlock.connect(url).lock("a").acquire()
grant.guard(own)
print("guarded", flush=True)
own.execute(query)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("query", "state"),
    [
        ("SELECT 1", "idle in transaction"),
        ("SELECT repeat('x', 100000), pg_sleep(0.01) FROM generate_series(1, 10000)", "active"),
    ],
)
def test_a_paused_process_with_an_open_transaction_is_ended_by_the_server(
    postgresql: Postgres, root: str, query: str, state: str
) -> None:
    url = postgresql.url_for(root, ttl="2s")
    found = "SELECT 1 FROM pg_stat_activity WHERE query = %s AND state = %s"
    with coordlock.connect(url) as client, postgresql.administrator() as admin:
        arguments = [sys.executable, "-c", HOLDER, url, postgresql.uri(), query]
        pipe = subprocess.PIPE
        with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True) as holder:
            try:
                assert holder.stdout is not None
                assert holder.stdout.readline() == "guarded\n"
                eventually(lambda: admin.execute(found, (query, state)).fetchone())
                holder.send_signal(signal.SIGSTOP)
                client.lock("a").acquire(timeout=30).release()
                assert not admin.execute(found, (query, state)).fetchone()
            finally:
                holder.kill()


def test_an_older_snapshot_is_refused_by_name(url: str, own: Admin) -> None:
    own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    own.execute("SELECT 1 FROM pg_class")
    with coordlock.connect(url) as client, client.lock("a") as grant:
        with pytest.raises(ValueError, match="acquire first, then begin"):
            grant.guard(own)
        own.rollback()
        grant.guard(own)
        own.commit()


def test_a_lost_lock_that_an_older_snapshot_does_not_show_is_refused_as_lost(
    postgresql: Postgres, url: str
) -> None:
    async def main() -> None:
        async with (
            coordlock.connect_async(url) as client,
            async_program(postgresql, "psycopg") as own,
        ):
            await own.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await own.execute("SELECT 1 FROM pg_class")
            grant = await client.lock("a").acquire()
            leave(postgresql)
            with pytest.raises(LockLost):
                await grant.release_with(own)

    with coordlock.connect(url) as client, program(postgresql, "psycopg") as own:
        own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        own.execute("SELECT 1 FROM pg_class")
        grant = client.lock("a").acquire()
        leave(postgresql)
        with pytest.raises(LockLost):
            grant.guard(own)
    asyncio.run(main())


def test_a_connection_without_a_transaction_is_refused(
    postgresql: Postgres, url: str, own: Admin
) -> None:
    async def refused(grant: coordlock.Grant) -> None:
        async with async_program(postgresql, "psycopg") as other:
            with pytest.raises(TypeError, match=r"not psycopg\.AsyncConnection"):
                grant.guard(other)

    own.autocommit = True
    with coordlock.connect(url) as client, client.lock("a") as grant:
        with pytest.raises(ValueError, match="begin a transaction"):
            grant.guard(own)
        with pytest.raises(TypeError, match=r"not builtins\.str"):
            grant.guard("postgresql://")
        asyncio.run(refused(grant))
        with own.transaction():
            grant.guard(own)


def test_sqlalchemy_in_autocommit_mode_is_refused(postgresql: Postgres, url: str) -> None:
    engine = create_engine(postgresql.url, isolation_level="AUTOCOMMIT")
    asynchronous = create_async_engine(postgresql.url, isolation_level="AUTOCOMMIT")

    async def main() -> None:
        async with coordlock.connect_async(url) as client, client.lock("a") as grant:
            async with asynchronous.connect() as connection:
                with pytest.raises(ValueError, match="begin a transaction"):
                    await grant.guard(connection)
            async with AsyncSession(asynchronous) as session:
                with pytest.raises(ValueError, match="begin a transaction"):
                    await grant.guard(session)
        await asynchronous.dispose()

    with coordlock.connect(url) as client, client.lock("a") as grant:
        with engine.connect() as connection, pytest.raises(ValueError, match="begin a transaction"):
            grant.guard(connection)
        with Session(engine) as session, pytest.raises(ValueError, match="begin a transaction"):
            grant.guard(session)
    engine.dispose()
    asyncio.run(main())


@pytest.mark.parametrize("row_factory", [dict_row, scalar_row, namedtuple_row])
def test_the_rows_that_a_program_has_chosen_change_nothing(
    url: str, own: Admin, row_factory: Any
) -> None:
    own.row_factory = row_factory
    with coordlock.connect(url) as client:
        grant = client.lock("a").acquire()
        grant.guard(own)
        grant.release_with(own)
        own.commit()


def test_other_services_say_what_to_use() -> None:
    with (
        coordlock.connect("memory://") as client,
        client.lock("a") as grant,
        pytest.raises(Unsupported, match="SQLFence"),
    ):
        grant.guard(object())
