"""A grant as a part of the program's own transaction, in the database that has the locks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import coordlock
from coordlock.errors import BackendError, LockLost, Unsupported
from testbed.servers.postgres import Postgres
from tests.integration.postgresql.test_access import connection

pytestmark = [pytest.mark.postgres]


@pytest.fixture
def url(postgresql: Postgres, root: str) -> str:
    return postgresql.url_for(root)


@pytest.fixture
def own(postgresql: Postgres) -> Iterator[psycopg.Connection[Any]]:
    """The program's own connection."""
    with connection(postgresql) as own:
        own.autocommit = False
        yield own


@pytest.fixture
def engine(postgresql: Postgres) -> Iterator[Engine]:
    engine = create_engine(postgresql.url)
    yield engine
    engine.dispose()


def granted(client: coordlock.Client, name: str) -> threading.Event:
    """Set once another client has the lock."""
    event = threading.Event()

    def wait() -> None:
        client.lock(name).acquire(timeout=30)
        event.set()

    threading.Thread(target=wait).start()
    return event


def test_a_guarded_lock_is_granted_to_nobody_before_the_commit(
    url: str, own: psycopg.Connection[Any]
) -> None:
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        grant = one.lock("a").acquire()
        grant.guard(own)
        other = granted(two, "a")
        began = time.monotonic()
        assert grant.release()
        assert time.monotonic() - began < 1
        assert not other.wait(1.5)
        own.commit()
        assert other.wait(10)


def test_an_evicted_grant_cannot_be_guarded(url: str, own: psycopg.Connection[Any]) -> None:
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        grant = one.lock("a").acquire()
        contenders = two.admin.contenders("a")
        two.admin.evict(contenders[0])
        with pytest.raises(LockLost):
            grant.guard(own)


def test_an_eviction_names_the_transaction_that_guards(
    url: str, own: psycopg.Connection[Any]
) -> None:
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        one.lock("a").acquire().guard(own)
        [contender] = two.admin.contenders("a")
        with pytest.raises(BackendError, match=rf"terminate_backend\({own.info.backend_pid}\)"):
            two.admin.evict(contender)
        own.rollback()


def test_an_eviction_names_one_of_several_transactions_that_guard(
    postgresql: Postgres, url: str, own: psycopg.Connection[Any]
) -> None:
    with coordlock.connect(url) as client, connection(postgresql) as other:
        grant = client.lock("a").acquire()
        grant.guard(own)
        with other.transaction():
            grant.guard(other)
            pids = f"{own.info.backend_pid}|{other.info.backend_pid}"
            [contender] = client.admin.contenders("a")
            with pytest.raises(BackendError, match=rf"terminate_backend\(({pids})\)"):
                client.admin.evict(contender)
        own.rollback()


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_lock_ends_with_the_transaction_that_releases_it(
    url: str, own: psycopg.Connection[Any], ends: str
) -> None:
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        with one.lock("a") as grant:
            other = granted(two, "a")
            grant.release_with(own)
        assert not other.wait(1)
        getattr(own, ends)()
        began = time.monotonic()
        assert other.wait(10)
        assert time.monotonic() - began < 3


def test_a_lock_ends_with_the_commit_though_its_client_is_gone(
    url: str, own: psycopg.Connection[Any]
) -> None:
    with coordlock.connect(url) as two:
        one = coordlock.connect(url)
        one.lock("a").acquire().release_with(own)
        one.close()
        assert two.lock("a").try_acquire() is None
        own.commit()
        two.lock("a").acquire(timeout=10)


def test_a_transaction_that_hangs_is_ended_by_the_server(
    postgresql: Postgres, root: str, own: psycopg.Connection[Any]
) -> None:
    with coordlock.connect(postgresql.url_for(root, ttl="2s")) as client:
        client.lock("a").acquire().guard(own)
        time.sleep(3)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            own.execute("SELECT 1")


def test_an_older_snapshot_is_refused_by_name(url: str, own: psycopg.Connection[Any]) -> None:
    own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    own.execute("SELECT 1 FROM pg_class")
    with coordlock.connect(url) as client, client.lock("a") as grant:
        with pytest.raises(ValueError, match="acquire first, then begin"):
            grant.guard(own)
        own.rollback()
        grant.guard(own)
        own.commit()


def test_a_connection_without_a_transaction_is_refused(
    url: str, own: psycopg.Connection[Any]
) -> None:
    own.autocommit = True
    with coordlock.connect(url) as client, client.lock("a") as grant:
        with pytest.raises(ValueError, match="begin a transaction"):
            grant.guard(own)
        with pytest.raises(TypeError, match=r"not builtins\.str"):
            grant.guard("postgresql://")
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
    url: str, own: psycopg.Connection[Any], row_factory: Any
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


def test_no_update_is_lost_though_the_commit_comes_after_the_block(
    url: str, engine: Engine, root: str
) -> None:
    table = f"account_{root[3:]}"
    with engine.begin() as setup:
        setup.execute(text(f"CREATE TABLE {table} (balance integer)"))
        setup.execute(text(f"INSERT INTO {table} VALUES (0)"))

    def deposit() -> None:
        with coordlock.connect(url) as client:
            for _ in range(10):
                with Session(engine) as session:
                    with client.lock("a") as grant:
                        grant.release_with(session)
                        balance = session.scalar(text(f"SELECT balance FROM {table}"))
                        time.sleep(0.005)
                        session.execute(text(f"UPDATE {table} SET balance = {balance + 1}"))
                    session.commit()

    threads = [threading.Thread(target=deposit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with engine.begin() as end:
        assert end.execute(text(f"SELECT balance FROM {table}")).scalar() == 40
        end.execute(text(f"DROP TABLE {table}"))


def test_asyncio_guards_and_releases(postgresql: Postgres, url: str) -> None:
    async def main() -> None:
        engine = create_async_engine(postgresql.url)
        async with (
            coordlock.connect_async(url) as one,
            coordlock.connect_async(url) as two,
            AsyncSession(engine) as session,
        ):
            grant = await one.lock("a").acquire()
            await grant.guard(session)
            async with await psycopg.AsyncConnection.connect(
                postgresql.url.set(drivername="postgresql").render_as_string(), row_factory=dict_row
            ) as own:
                await grant.guard(own)
            began = time.monotonic()
            await grant.release_with(session)
            assert time.monotonic() - began < 1
            assert await two.lock("a").try_acquire() is None
            await session.commit()
            await two.lock("a").acquire(timeout=10)
        await engine.dispose()

    asyncio.run(main())
