"""The SQL fences pass the suite of fences on SQLite and PostgreSQL, on connections and sessions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
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

from coordlock.fencing import Presented
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
    session on which they were checked.
    """

    def __init__(self, fence: Any, fenced: Callable[..., AbstractContextManager[Any]]) -> None:
        super().__init__(fence)
        self.fenced = fenced

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        with self.fenced(resource, token, shared) as connection:
            return int(on(connection, read_value, resource))

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        with self.fenced(resource, token, shared) as connection:
            on(connection, write_value, resource, value)


def on(connection: Any, function: Callable[..., Any], *arguments: object) -> Any:
    """The result of ``function`` on a connection, which may be one for asyncio."""
    if hasattr(connection, "run_sync"):
        return connection.run_sync(function, *arguments)
    return function(connection, *arguments)


class EachInATransaction:
    """A fence that lives as long as a transaction: each call has its own, which ``begin`` makes."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Any]]) -> None:
        self._begin = begin

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object) -> Any:
            with self._begin() as fence:
                return getattr(fence, name)(*arguments)

        return call


def in_transactions(transactions: Engine | sessionmaker[Session]) -> Protected:
    @contextlib.contextmanager
    def fenced(*presented: Any) -> Iterator[Any]:
        with transactions.begin() as connection:
            SQLFence(connection, FENCE).check(*presented)
            yield connection

    @contextlib.contextmanager
    def begin() -> Iterator[SQLFence]:
        with transactions.begin() as connection:
            yield SQLFence(connection, FENCE)

    return InDatabase(EachInATransaction(begin), fenced)


def guarded(transactions: Engine | sessionmaker[Session]) -> Protected:
    fence = SQLGuardingFence(transactions, FENCE)
    return InDatabase(fence, fence.guard)


def in_async_transactions(
    portal: Portal, transactions: AsyncEngine | async_sessionmaker[Any]
) -> Protected:
    @contextlib.asynccontextmanager
    async def fenced(*presented: Any) -> AsyncIterator[Any]:
        async with transactions.begin() as connection:
            await AsyncSQLFence(connection, FENCE).check(*presented)
            yield connection

    @contextlib.asynccontextmanager
    async def begin() -> AsyncIterator[AsyncSQLFence]:
        async with transactions.begin() as connection:
            yield AsyncSQLFence(connection, FENCE)

    return InDatabase(
        EachInATransaction(lambda: portal.front(begin())),
        lambda *presented: portal.front(fenced(*presented)),
    )


def guarded_async(portal: Portal, transactions: AsyncEngine | async_sessionmaker[Any]) -> Protected:
    fence = portal.front(AsyncSQLGuardingFence(transactions, FENCE))
    return InDatabase(fence, fence.guard)


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
    with contextlib.closing(Portal()) as portal:
        yield portal


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
