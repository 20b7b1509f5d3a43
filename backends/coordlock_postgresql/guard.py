"""A question to the database in the transaction of the program: psycopg, SQLAlchemy, asyncio."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["ask", "ask_async"]

_AUTOCOMMIT: Final = "the connection is in autocommit mode: begin a transaction first"


def ask(connection: Any, query: str, parameters: Mapping[str, object]) -> str:
    """The answer to ``query``. Raises ValueError for a connection without a transaction."""
    if (statement := _for_sqlalchemy(connection, query, parameters)) is not None:
        # A session has a method of this name, and a connection the driver's connection.
        of_session = callable(connection.connection)
        _refuse_autocommit(connection.connection() if of_session else connection)
        return str(connection.execute(statement, parameters).scalar_one())
    asked = _for_psycopg(connection, query, parameters)
    cursor = _cursor(connection).execute(asked, parameters)
    [answer] = cursor.fetchone()
    return str(answer)


async def ask_async(connection: Any, query: str, parameters: Mapping[str, object]) -> str:
    """The same with asyncio."""
    if (statement := _for_sqlalchemy(connection, query, parameters)) is not None:
        of_session = not hasattr(connection, "sync_connection")
        own = await connection.connection() if of_session else connection
        _refuse_autocommit(own.sync_connection)
        return str((await connection.execute(statement, parameters)).scalar_one())
    asked = _for_psycopg(connection, query, parameters)
    cursor = await _cursor(connection).execute(asked, parameters)
    [answer] = await cursor.fetchone()
    return str(answer)


def _for_sqlalchemy(connection: Any, query: str, parameters: Mapping[str, object]) -> Any:
    """The query for a connection or session of SQLAlchemy; None for another one."""
    if not any(kind.__module__.startswith("sqlalchemy.") for kind in type(connection).__mro__):
        return None
    return sys.modules["sqlalchemy"].text(query.format(**{name: f":{name}" for name in parameters}))


def _refuse_autocommit(connection: Any) -> None:
    """Raise ValueError for a connection of SQLAlchemy in which each statement is committed."""
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise ValueError(_AUTOCOMMIT)


def _for_psycopg(connection: Any, query: str, parameters: Mapping[str, object]) -> str:
    if not hasattr(connection, "info") or not hasattr(connection, "execute"):
        raise TypeError(
            "a connection of psycopg 3 or SQLAlchemy is needed, or a session of SQLAlchemy, not "
            f"{type(connection).__module__}.{type(connection).__qualname__}"
        )
    if connection.autocommit and not connection.info.transaction_status:
        raise ValueError(_AUTOCOMMIT)
    return query.format(**{name: f"%({name})s" for name in parameters})


def _cursor(connection: Any) -> Any:
    """A cursor whose rows are tuples: the program may have chosen other rows for its connection."""
    return connection.cursor(row_factory=sys.modules["psycopg"].rows.tuple_row)
