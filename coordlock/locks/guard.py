"""A question to the database in the transaction of the program: psycopg, SQLAlchemy, asyncio."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["ask", "ask_async"]


def ask(connection: Any, query: str, parameters: Mapping[str, object]) -> str:
    """The answer to ``query``. Raises ValueError for a connection without a transaction."""
    if (statement := _for_sqlalchemy(connection, query, parameters)) is not None:
        return str(connection.execute(statement, parameters).scalar_one())
    asked = _for_psycopg(connection, query, parameters)
    [answer] = connection.execute(asked, parameters).fetchone()
    return str(answer)


async def ask_async(connection: Any, query: str, parameters: Mapping[str, object]) -> str:
    """The same with asyncio."""
    if (statement := _for_sqlalchemy(connection, query, parameters)) is not None:
        return str((await connection.execute(statement, parameters)).scalar_one())
    asked = _for_psycopg(connection, query, parameters)
    cursor = await connection.execute(asked, parameters)
    [answer] = await cursor.fetchone()
    return str(answer)


def _for_sqlalchemy(connection: Any, query: str, parameters: Mapping[str, object]) -> Any:
    """The query for a connection or session of SQLAlchemy; None for another one."""
    if not any(kind.__module__.startswith("sqlalchemy.") for kind in type(connection).__mro__):
        return None
    return sys.modules["sqlalchemy"].text(query.format(**{name: f":{name}" for name in parameters}))


def _for_psycopg(connection: Any, query: str, parameters: Mapping[str, object]) -> str:
    if not hasattr(connection, "info") or not hasattr(connection, "execute"):
        raise TypeError(
            "a connection of psycopg 3 or SQLAlchemy is needed, or a session of SQLAlchemy, not "
            f"{type(connection).__module__}.{type(connection).__qualname__}"
        )
    if connection.autocommit and not connection.info.transaction_status:
        raise ValueError("the connection is in autocommit mode: begin a transaction first")
    return query.format(**{name: f"%({name})s" for name in parameters})
