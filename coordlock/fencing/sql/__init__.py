"""Fences in a SQL database, through SQLAlchemy: the check is part of the caller's transaction.

::

    from coordlock.fencing.sql import SQLFence

    with client.lock("alice") as grant, engine.begin() as connection:
        SQLFence(connection).check("alice", grant)     # before anything is read
        connection.execute(...)

PostgreSQL and SQLite, sync and asyncio. The newest tokens are kept in a table beside the data:
`create_fence_table` makes it, `fence_table` puts it into an application's own metadata, and
`fence_ddl` prints it for a migration written by hand.
"""

from coordlock.errors import ConfigurationError

try:
    import sqlalchemy  # noqa: F401
except ImportError:
    raise ConfigurationError.missing("SQL fences need the package sqlalchemy", "sql") from None

from coordlock.fencing.sql.fence import AsyncSQLFence, SQLFence
from coordlock.fencing.sql.guarding import AsyncSQLGuardingFence, SQLGuardingFence
from coordlock.fencing.sql.table import FENCE_TABLE, create_fence_table, fence_ddl, fence_table

__all__ = [
    "FENCE_TABLE",
    "AsyncSQLFence",
    "AsyncSQLGuardingFence",
    "SQLFence",
    "SQLGuardingFence",
    "create_fence_table",
    "fence_ddl",
    "fence_table",
]
