"""The fence that opens transactions itself: for middleware, and for code without a transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
)
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sqlalchemy import Connection, Table

from coordlock.fencing.fence import AsyncGuardingFence, GuardingFence
from coordlock.fencing.marks import Marks
from coordlock.fencing.sql.fence import AsyncSQLFence, SQLFence
from coordlock.fencing.sql.table import FENCE_TABLE
from coordlock.fencing.token import Presented
from coordlock.runtime.guards import block

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

__all__ = ["AsyncSQLGuardingFence", "SQLGuardingFence"]

C_co = TypeVar("C_co", bound="Connection | Session", covariant=True)
AC_co = TypeVar("AC_co", bound="AsyncConnection | AsyncSession", covariant=True)


class _Transactions(Protocol[C_co]):
    def begin(self) -> AbstractContextManager[C_co]: ...


class _AsyncTransactions(Protocol[AC_co]):
    def begin(self) -> AbstractAsyncContextManager[AC_co]: ...


class SQLGuardingFence(GuardingFence, Generic[C_co]):
    """Guards blocks with transactions that it opens and ends: see `SQLFence` for the check.

    ::

        fence = SQLGuardingFence(engine)
        with fence.guard("alice", grant) as connection:
            connection.execute(...)                     # committed at the end of the block

    Only what is written through that connection is fenced. For what a block does elsewhere it is no
    guard but a lease: the database may end a transaction that stands still, and let newer tokens
    pass while the block goes on. And the mark is undone when the block or the commit fails.

    Args:
        transactions: an engine, or a ``sessionmaker``: ``guard`` gives a connection or a session.
        table: what `fence_table` returned.
    """

    def __init__(self, transactions: _Transactions[C_co], table: Table = FENCE_TABLE) -> None:
        self._transactions = transactions
        self._table = table

    @block
    def guard(self, resource: str, token: Presented, shared: bool = False) -> Iterator[C_co]:
        """Check, and run the block in the same transaction: see `GuardingFence.guard`."""
        with self._transactions.begin() as connection:
            SQLFence(connection, self._table).check(resource, token, shared)
            yield connection

    def marks(self, resource: str) -> Marks:
        """The newest tokens seen: see `Fence.marks`."""
        with self._transactions.begin() as connection:
            return SQLFence(connection, self._table).marks(resource)

    def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``: see `Fence.forget`."""
        with self._transactions.begin() as connection:
            SQLFence(connection, self._table).forget(resource)

    def prune(self, is_gone: Callable[[str, Marks], bool]) -> int:
        """Forget the resources of which ``is_gone(resource, marks)`` is true: see `SQLFence`."""
        with self._transactions.begin() as connection:
            return SQLFence(connection, self._table).prune(is_gone)


class AsyncSQLGuardingFence(AsyncGuardingFence, Generic[AC_co]):
    """`SQLGuardingFence` for asyncio: over an ``AsyncEngine`` or an ``async_sessionmaker``."""

    def __init__(self, transactions: _AsyncTransactions[AC_co], table: Table = FENCE_TABLE) -> None:
        self._transactions = transactions
        self._table = table

    @asynccontextmanager
    async def guard(
        self, resource: str, token: Presented, shared: bool = False
    ) -> AsyncIterator[AC_co]:
        """Check, and run the block in the same transaction: see `GuardingFence.guard`."""
        async with self._transactions.begin() as connection:
            await AsyncSQLFence(connection, self._table).check(resource, token, shared)
            yield connection

    async def marks(self, resource: str) -> Marks:
        """The newest tokens seen: see `Fence.marks`."""
        async with self._transactions.begin() as connection:
            return await AsyncSQLFence(connection, self._table).marks(resource)

    async def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``: see `Fence.forget`."""
        async with self._transactions.begin() as connection:
            await AsyncSQLFence(connection, self._table).forget(resource)

    async def prune(self, is_gone: Callable[[str, Marks], bool]) -> int:
        """Forget the resources of which ``is_gone(resource, marks)`` is true: see `SQLFence`."""
        async with self._transactions.begin() as connection:
            return await AsyncSQLFence(connection, self._table).prune(is_gone)
