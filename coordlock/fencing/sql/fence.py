"""The fence inside the caller's transaction.

Why no newer holder can come between the check and the write: the check writes the resource's row,
also when the marks stay as they are, and so holds that row's lock until the transaction ends. Every
other check of the same resource waits for that end, and then decides by the row as it is.

PostgreSQL, READ COMMITTED (READ UNCOMMITTED is the same there): the upsert that waited sees the
newest committed row, whatever it would have seen before it waited; each later statement sees all
that was committed by then, so all writes of the holders that were checked before.

PostgreSQL, REPEATABLE READ and SERIALIZABLE: the transaction reads as of its first statement. Had
another check been committed since, the row would be newer than that, and the upsert fails with a
serialization failure instead of deciding by an old row. This too needs the row to be written every
time. The caller repeats the transaction, as at these levels it must anyway.

SQLite: one transaction writes at a time, and the upsert makes this one the writer. A transaction
that read before that, and was overtaken by another writer, gets ``database is locked`` at once, and
the caller repeats it. (Python's driver begins none for a read, unless told otherwise. So
what was read before the check is not protected by it.)

A refusal holds the row too, on both: so the marks that are read for its message are those that
refused, and a transaction that goes on after it should end soon.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Table,
    and_,
    case,
    delete,
    select,
)

from coordlock.errors import ConfigurationError
from coordlock.fencing.fence import AsyncFence, Fence
from coordlock.fencing.marks import Marks
from coordlock.fencing.sql.dialect import Insert, insert_for, is_in_transaction, is_savepoint_alone
from coordlock.fencing.sql.table import FENCE_TABLE
from coordlock.fencing.token import FencingToken, Presented, check_resource

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

__all__ = ["AsyncSQLFence", "SQLFence"]


class SQLFence(Fence):
    """Checks tokens within the transaction of ``connection``, by one statement.

    The check commits or rolls back with the caller's writes, and they are one step with it::

        with engine.begin() as connection:
            SQLFence(connection).check("alice", grant)
            connection.execute(...)

    Check before the first read, and let objects expire that an ORM session holds already. From the
    check on, other checks of the same resource wait until the transaction ends, readers' too.
    Readers that should not wait for each other can check in a transaction of their own before they
    read: see `SQLGuardingFence.check`. What is rolled back to a savepoint from before the check is
    not protected by it any more.

    `StaleToken` is no error of the database, so the transaction can continue after it. Errors of
    the database reach the caller unchanged. After a serialization failure, a deadlock or SQLite's
    ``database is locked``, repeat the whole transaction.

    Args:
        connection: a connection or an ORM session. In autocommit mode `check` raises
            `ConfigurationError`, because check and write would not be one step. What it protects
            must be in the same database.
        table: what `fence_table` returned.

    A resource's name must fit into an index of the database: with PostgreSQL about 2600 bytes
    without NUL.
    """

    def __init__(self, connection: Connection | Session, table: Table = FENCE_TABLE) -> None:
        given: object = connection
        if isinstance(given, Engine):
            raise ConfigurationError(
                "a SQLFence is for one transaction: give it a connection or a session, "
                "or use SQLGuardingFence(engine)"
            )
        self._given = connection
        self._table = table

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        """Remember ``token``; raise `StaleToken` when a newer one was seen: see `Fence.check`.

        Raises `ConfigurationError` for a connection in autocommit mode, and for databases other
        than PostgreSQL and SQLite.
        """
        check_resource(resource)
        presented = FencingToken.of(token, shared)
        connection = self._connection()
        if is_savepoint_alone(connection):
            raise ConfigurationError(
                "in this mode of SQLite's driver the check could be committed at the end of the "
                "savepoint: check before begin_nested()"
            )
        statement = _upsert(insert_for(connection.dialect), self._table, presented.shared)
        row = {"resource": resource, "exclusive_token": 0, "shared_token": 0}
        row["shared_token" if presented.shared else "exclusive_token"] = presented.value
        admitted = connection.execute(statement, row).first()
        if not is_in_transaction(connection):
            raise ConfigurationError(
                "the connection is in autocommit mode: the check and the write that it protects "
                "would not be one step; check on a connection with a transaction"
            )
        if admitted is None:
            self.marks(resource).raised(resource, presented)
            raise ConfigurationError(
                f"the database stored no token for {resource!r} and gave no reason: is there a "
                f"trigger, a rule or a policy on the table {self._table.fullname!r}?"
            )

    def marks(self, resource: str) -> Marks:
        """The newest tokens seen, as this transaction sees them: see `Fence.marks`."""
        columns = self._table.c
        statement = select(columns.exclusive_token, columns.shared_token)
        row = self._connection().execute(statement.where(columns.resource == resource)).first()
        return Marks(*row) if row else Marks()

    def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``, at the commit: see `Fence.forget`."""
        table = self._table
        self._connection().execute(delete(table).where(table.c.resource == resource))

    def prune(self, is_gone: Callable[[str, Marks], bool]) -> int:
        """Forget the resources of which ``is_gone(resource, marks)`` is true; how many.

        At the commit. The conditions are those of `Fence.forget`. A resource that sees a newer
        token meanwhile stays.
        """
        columns, pruned = self._table.c, 0
        connection = self._connection()
        wanted = select(columns.resource, columns.exclusive_token, columns.shared_token)
        for resource, exclusive, shared in connection.execute(wanted).all():
            if is_gone(resource, Marks(exclusive, shared)):
                unchanged = and_(
                    columns.resource == resource,
                    columns.exclusive_token == exclusive,
                    columns.shared_token == shared,
                )
                pruned += connection.execute(delete(self._table).where(unchanged)).rowcount
        return pruned

    def _connection(self) -> Connection:
        if isinstance(self._given, Connection):
            return self._given
        # A session that knows several databases is asked for the one that has the table.
        return self._given.connection(bind_arguments={"clause": self._table})


class AsyncSQLFence(AsyncFence):
    """`SQLFence` for asyncio: on an ``AsyncConnection`` or an ``AsyncSession``."""

    def __init__(
        self, connection: AsyncConnection | AsyncSession, table: Table = FENCE_TABLE
    ) -> None:
        self._given = connection
        self._table = table

    async def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        """Remember ``token``; raise `StaleToken` when a newer one was seen: as in `SQLFence`."""
        await self._given.run_sync(
            lambda connection: SQLFence(connection, self._table).check(resource, token, shared)
        )

    async def marks(self, resource: str) -> Marks:
        """The newest tokens seen, as this transaction sees them: see `Fence.marks`."""
        return await self._given.run_sync(
            lambda connection: SQLFence(connection, self._table).marks(resource)
        )

    async def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``, at the commit: see `Fence.forget`."""
        await self._given.run_sync(
            lambda connection: SQLFence(connection, self._table).forget(resource)
        )

    async def prune(self, is_gone: Callable[[str, Marks], bool]) -> int:
        """Forget the resources of which ``is_gone(resource, marks)`` is true: see `SQLFence`."""
        return await self._given.run_sync(
            lambda connection: SQLFence(connection, self._table).prune(is_gone)
        )


@lru_cache(maxsize=32)
def _upsert(insert: Callable[[Table], Insert], table: Table, shared: bool) -> Executable:
    """`Marks.raised` in SQL, for a row of zeros and the token: gives a row when it is admitted.

    A resource that has no row yet gets this one, as marks of zeros admit every token.
    """
    statement = insert(table)
    seen, new = table.c, statement.excluded
    later: dict[str, ColumnElement[int]]
    if shared:
        is_newer = new.shared_token > seen.shared_token
        later = {"shared_token": case((is_newer, new.shared_token), else_=seen.shared_token)}
        admitted = new.shared_token >= seen.exclusive_token
    else:
        later = {"exclusive_token": new.exclusive_token}
        admitted = and_(
            new.exclusive_token >= seen.exclusive_token, new.exclusive_token >= seen.shared_token
        )
    return statement.on_conflict_do_update(
        index_elements=[seen.resource], set_=later, where=admitted
    ).returning(seen.resource)
