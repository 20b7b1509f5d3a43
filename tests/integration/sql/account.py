"""An account behind a SQL fence: what the tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from coordlock.fencing.sql import SQLFence, fence_table

__all__ = [
    "FENCE",
    "ISOLATION_LEVELS",
    "LEDGER",
    "balance",
    "connect",
    "create",
    "deposit",
    "fence",
    "must_repeat",
    "repeat",
]

T = TypeVar("T")

ISOLATION_LEVELS: Final = (
    "READ UNCOMMITTED",
    "READ COMMITTED",
    "REPEATABLE READ",
    "SERIALIZABLE",
)

METADATA: Final = MetaData()
FENCE: Final = fence_table(METADATA)
ACCOUNT: Final = Table("account", METADATA, Column("balance", BigInteger, nullable=False))
#: One row for each deposit, numbered in the order of their making.
LEDGER: Final = Table(
    "ledger",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("token", BigInteger, nullable=False),
)


def connect(url: str, style: str, *, timeout: float = 60.0) -> Engine:
    """An engine whose transactions begin in ``style``.

    With PostgreSQL an isolation level; with SQLite ``driver``, which is sqlite3's own way, or the
    statement that begins a transaction, such as ``BEGIN IMMEDIATE``. ``timeout`` is SQLite's.
    """
    if not url.startswith("sqlite"):
        return create_engine(url, isolation_level=style)
    engine = create_engine(url, connect_args={"timeout": timeout})
    if style != "driver":

        @event.listens_for(engine, "connect")
        def leave_it_to_us(connection: Any, _: object) -> None:
            connection.isolation_level = None

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql(style)

    return engine


def create(engine: Engine, journal: str = "delete") -> None:
    """An empty account; ``journal`` is the mode of SQLite's journal, which a file keeps."""
    if engine.dialect.name == "sqlite":
        raw = engine.raw_connection()
        raw.execute(f"PRAGMA journal_mode = {journal}")
        raw.close()
    with engine.begin() as connection:
        METADATA.create_all(connection)
        connection.execute(insert(ACCOUNT).values(balance=0))


def fence(connection: Connection) -> SQLFence:
    return SQLFence(connection, FENCE)


def balance(connection: Connection) -> int:
    return int(connection.execute(select(ACCOUNT.c.balance)).scalar_one())


def deposit(connection: Connection, token: int, new_balance: int) -> None:
    connection.execute(update(ACCOUNT).values(balance=new_balance))
    connection.execute(insert(LEDGER).values(token=token))


def must_repeat(error: DBAPIError) -> bool:
    """Whether the database asks for the whole transaction to be repeated."""
    if getattr(error.orig, "sqlstate", None) in ("40001", "40P01"):
        return True  # a serialization failure, a deadlock
    return "database is locked" in str(error.orig)


def repeat(engine: Engine, work: Callable[[Connection], T]) -> T:
    """``work`` in a transaction, repeated for as long as the database asks for that."""
    while True:
        try:
            with engine.begin() as connection:
                return work(connection)
        except DBAPIError as error:
            if not must_repeat(error):
                raise
