"""What SQL fences need of a database: its dialect's upsert, and a transaction that is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Table
from sqlalchemy.dialects import postgresql, sqlite

from coordlock.errors import ConfigurationError

__all__ = ["Insert", "insert_for", "is_in_transaction", "is_savepoint_alone", "named_dialect"]

Insert = postgresql.Insert | sqlite.Insert

_INSERTS: Final[dict[str, Callable[[Table], Insert]]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}
_DIALECTS: Final[dict[str, Callable[[], Dialect]]] = {
    "postgresql": postgresql.dialect,
    "sqlite": sqlite.dialect,
}


def insert_for(dialect: Dialect) -> Callable[[Table], Insert]:
    """The dialect's own insert. Raises `ConfigurationError` where it cannot do what fences need."""
    _require_known(dialect.name)
    if not dialect.insert_returning:
        raise ConfigurationError("SQL fences need INSERT ... RETURNING, as of SQLite 3.35")
    return _INSERTS[dialect.name]


def named_dialect(name: str) -> Dialect:
    """The dialect of that name, as far as text needs it. Raises `ConfigurationError`."""
    _require_known(name)
    return _DIALECTS[name]()


def _require_known(name: str) -> None:
    if name not in _INSERTS:
        raise ConfigurationError(f"SQL fences work on {' and '.join(_INSERTS)}, not on {name!r}")


def is_in_transaction(connection: Connection) -> bool:
    """Whether the last statement's effects wait for a commit, by the driver's own account.

    SQLAlchemy's account will not do: it counts a transaction in autocommit mode too, and autocommit
    can be set where it does not see it. No driver asks the server for this.
    """
    driver: Any = connection.connection.driver_connection
    if hasattr(driver, "in_transaction"):  # sqlite3, aiosqlite
        return bool(driver.in_transaction)
    if hasattr(driver, "is_in_transaction"):  # asyncpg
        return bool(driver.is_in_transaction())
    if hasattr(driver, "info"):  # psycopg, psycopg2; 0 is libpq's PQTRANS_IDLE
        return bool(driver.info.transaction_status != 0)
    if hasattr(driver, "autocommit"):  # pg8000
        return not driver.autocommit
    raise ConfigurationError(
        f"SQL fences cannot ask the driver {type(driver).__module__} whether it is in a transaction"
    )


def is_savepoint_alone(connection: Connection) -> bool:
    """Whether this may be in a savepoint that is a transaction of its own.

    Python's driver of SQLite begins transactions late, at the first write, unless told otherwise.
    A savepoint that comes before is not inside of any: its release is the commit.
    """
    if connection.dialect.name != "sqlite" or not connection.in_nested_transaction():
        return False
    driver: Any = connection.connection.driver_connection
    legacy = getattr(driver, "autocommit", -1) == -1  # sqlite3.LEGACY_TRANSACTION_CONTROL
    return legacy and driver.isolation_level is not None
