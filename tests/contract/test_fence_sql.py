"""The SQL fences pass the suite of fences on SQLite and PostgreSQL, on connections and sessions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    MetaData,
    Table,
    Text,
    create_engine,
    delete,
    insert,
    make_url,
    select,
)
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from coordlock.fencing import Marks, Presented
from coordlock.fencing.fence import AsyncFence, Fence
from coordlock.fencing.sql import (
    AsyncSQLFence,
    AsyncSQLGuardingFence,
    SQLFence,
    SQLGuardingFence,
    fence_table,
)
from coordlock.testing.fence_contract import FenceContract, Protected
from coordlock.testing.portal import Portal

METADATA: Final = MetaData()
FENCE: Final = fence_table(METADATA, "fence_of_the_suite")
VALUES: Final = Table(
    "values_of_the_suite",
    METADATA,
    Column("resource", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)


def read_value(connection: Any, resource: str) -> int:
    found = connection.execute(select(VALUES.c.value).where(VALUES.c.resource == resource)).scalar()
    return int(found or 0)


def write_value(connection: Any, resource: str, value: int) -> None:
    connection.execute(delete(VALUES).where(VALUES.c.resource == resource))
    connection.execute(insert(VALUES).values(resource=resource, value=value))


class InDatabase(Protected):
    """Integers in a table.

    ``fenced`` takes a resource, a token and whether that is shared, and gives a connection or a
    session on which they were checked; ``fence`` gives a fence.
    """

    def __init__(
        self,
        fenced: Callable[[str, Presented, bool], AbstractContextManager[Any]],
        fence: Callable[[], AbstractContextManager[Fence]],
    ) -> None:
        self.fenced, self.fence = fenced, fence

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        with self.fenced(resource, token, shared) as connection:
            return read_value(connection, resource)

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        with self.fenced(resource, token, shared) as connection:
            write_value(connection, resource, value)

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        with self.fence() as fence:
            fence.check(resource, token, shared)

    def marks(self, resource: str) -> Marks:
        with self.fence() as fence:
            return fence.marks(resource)

    def forget(self, resource: str) -> None:
        with self.fence() as fence:
            fence.forget(resource)


def in_transactions(transactions: Engine | sessionmaker[Session]) -> Protected:
    @contextlib.contextmanager
    def fenced(resource: str, token: Presented, shared: bool) -> Iterator[Any]:
        with transactions.begin() as connection:
            SQLFence(connection, FENCE).check(resource, token, shared)
            yield connection

    @contextlib.contextmanager
    def fence() -> Iterator[Fence]:
        with transactions.begin() as connection:
            yield SQLFence(connection, FENCE)

    return InDatabase(fenced, fence)


def guarded(transactions: Engine | sessionmaker[Session]) -> Protected:
    fence = SQLGuardingFence(transactions, FENCE)
    return InDatabase(fence.guard, lambda: contextlib.nullcontext(fence))


class InDatabaseAsync(Protected):
    """`InDatabase` for asyncio."""

    def __init__(
        self,
        portal: Portal,
        fenced: Callable[[str, Presented, bool], AbstractAsyncContextManager[Any]],
        fence: Callable[[], AbstractAsyncContextManager[AsyncFence]],
    ) -> None:
        self.portal, self.fenced, self.fence = portal, fenced, fence

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        async def read() -> int:
            async with self.fenced(resource, token, shared) as connection:
                return int(await connection.run_sync(read_value, resource))

        return self.portal.wait(read())

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        async def write() -> None:
            async with self.fenced(resource, token, shared) as connection:
                await connection.run_sync(write_value, resource, value)

        self.portal.wait(write())

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        async def check() -> None:
            async with self.fence() as fence:
                await fence.check(resource, token, shared)

        self.portal.wait(check())

    def marks(self, resource: str) -> Marks:
        async def marks() -> Marks:
            async with self.fence() as fence:
                return await fence.marks(resource)

        return self.portal.wait(marks())

    def forget(self, resource: str) -> None:
        async def forget() -> None:
            async with self.fence() as fence:
                await fence.forget(resource)

        self.portal.wait(forget())


def in_async_transactions(
    portal: Portal, transactions: AsyncEngine | async_sessionmaker[Any]
) -> Protected:
    @contextlib.asynccontextmanager
    async def fenced(resource: str, token: Presented, shared: bool) -> AsyncIterator[Any]:
        async with transactions.begin() as connection:
            await AsyncSQLFence(connection, FENCE).check(resource, token, shared)
            yield connection

    @contextlib.asynccontextmanager
    async def fence() -> AsyncIterator[AsyncFence]:
        async with transactions.begin() as connection:
            yield AsyncSQLFence(connection, FENCE)

    return InDatabaseAsync(portal, fenced, fence)


def guarded_async(portal: Portal, transactions: AsyncEngine | async_sessionmaker[Any]) -> Protected:
    fence = AsyncSQLGuardingFence(transactions, FENCE)
    return InDatabaseAsync(portal, fence.guard, lambda: contextlib.nullcontext(fence))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with contextlib.ExitStack() as stack:
        if request.param == "postgres":
            url = stack.enter_context(request.getfixturevalue("postgres").schema())
            engine = create_engine(url)
        else:
            # Whoever waits for SQLite's write lock asks again and again, in no order.
            engine = create_engine(f"sqlite:///{tmp_path}/db", connect_args={"timeout": 60})
        stack.callback(engine.dispose)
        METADATA.create_all(engine)
        yield engine


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


@pytest.fixture
def async_engine(engine: Engine, portal: Portal) -> Iterator[AsyncEngine]:
    """Another engine on the same database."""
    if engine.dialect.name == "sqlite":
        url = engine.url.set(drivername="sqlite+aiosqlite")
        other = create_async_engine(url, connect_args={"timeout": 60})
    else:
        other = create_async_engine(make_url(engine.url))
    yield other
    portal.wait(other.dispose())


class TestSQLFence(FenceContract):
    fence = SQLFence

    @pytest.fixture
    def protected(self, engine: Engine) -> Protected:
        return in_transactions(engine)


class TestSQLFenceOnSessions(FenceContract):
    pytestmark = pytest.mark.long_on("postgres")  # a session only passes on what it is given
    fence = SQLFence

    @pytest.fixture
    def protected(self, engine: Engine) -> Protected:
        return in_transactions(sessionmaker(engine))


class TestSQLGuardingFence(FenceContract):
    fence = SQLGuardingFence

    @pytest.fixture
    def protected(self, engine: Engine) -> Protected:
        return guarded(engine)


class TestAsyncSQLFence(FenceContract):
    fence = AsyncSQLFence

    @pytest.fixture
    def protected(self, async_engine: AsyncEngine, portal: Portal) -> Protected:
        return in_async_transactions(portal, async_engine)


class TestAsyncSQLFenceOnSessions(FenceContract):
    pytestmark = pytest.mark.long_on("postgres")  # a session only passes on what it is given
    fence = AsyncSQLFence

    @pytest.fixture
    def protected(self, async_engine: AsyncEngine, portal: Portal) -> Protected:
        return in_async_transactions(portal, async_sessionmaker(async_engine))


class TestAsyncSQLGuardingFence(FenceContract):
    fence = AsyncSQLGuardingFence

    @pytest.fixture
    def protected(self, async_engine: AsyncEngine, portal: Portal) -> Protected:
        return guarded_async(portal, async_engine)
