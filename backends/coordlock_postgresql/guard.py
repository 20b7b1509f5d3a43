"""A question to the database in the transaction of the program: psycopg, SQLAlchemy, Django."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from inspect import iscoroutinefunction
from typing import Any, Final

__all__ = ["Statement", "ask", "ask_async"]

#: A query, and its parameters, which stand in braces in it.
Statement = tuple[str, dict[str, object]]

_AUTOCOMMIT: Final = "the connection is in autocommit mode: begin a transaction first"


def ask(connection: Any, statements: Sequence[Statement]) -> str:
    """The answer to the last of ``statements``, or ``elsewhere`` of an earlier one.

    Raises ValueError for a connection without a transaction.
    """
    answer = ""
    for query, parameters in statements:
        if (answer := _answer(connection, query, parameters)) == "elsewhere":
            break
    return answer


async def ask_async(connection: Any, statements: Sequence[Statement]) -> str:
    """The same with asyncio."""
    answer = ""
    for query, parameters in statements:
        if (answer := await _answer_async(connection, query, parameters)) == "elsewhere":
            break
    return answer


def _answer(connection: Any, query: str, parameters: dict[str, object]) -> str:
    if (statement := _for_sqlalchemy(connection, query, parameters)) is not None:
        # A session has a method of this name, and a connection the driver's connection.
        of_session = callable(connection.connection)
        _refuse_autocommit(connection.connection() if of_session else connection)
        return str(connection.execute(statement, parameters).scalar_one())
    if hasattr(connection, "in_atomic_block"):  # Django's
        if connection.get_autocommit():
            raise ValueError(_AUTOCOMMIT)
        with connection.cursor() as cursor:
            cursor.execute(_with_percents(query, parameters), parameters)
            [answer] = cursor.fetchone()
        return str(answer)
    _refuse_other_kinds(connection, awaits=False)
    cursor = _cursor(connection).execute(_with_percents(query, parameters), parameters)
    [answer] = cursor.fetchone()
    return str(answer)


async def _answer_async(connection: Any, query: str, parameters: dict[str, object]) -> str:
    if (statement := _for_sqlalchemy(connection, query, parameters)) is not None:
        of_session = not hasattr(connection, "sync_connection")
        own = await connection.connection() if of_session else connection
        _refuse_autocommit(own.sync_connection)
        return str((await connection.execute(statement, parameters)).scalar_one())
    _refuse_other_kinds(connection, awaits=True)
    cursor = await _cursor(connection).execute(_with_percents(query, parameters), parameters)
    [answer] = await cursor.fetchone()
    return str(answer)


def _for_sqlalchemy(connection: Any, query: str, parameters: dict[str, object]) -> Any:
    """The query for a connection or session of SQLAlchemy; None for another one."""
    if not any(kind.__module__.startswith("sqlalchemy.") for kind in type(connection).__mro__):
        return None
    return sys.modules["sqlalchemy"].text(query.format(**{name: f":{name}" for name in parameters}))


def _refuse_autocommit(connection: Any) -> None:
    """Raise ValueError for a connection of SQLAlchemy in which each statement is committed."""
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise ValueError(_AUTOCOMMIT)


def _refuse_other_kinds(connection: Any, *, awaits: bool) -> None:
    """Raise TypeError unless this is psycopg's, ValueError where each statement is committed."""
    is_psycopgs = hasattr(connection, "info") and hasattr(connection, "execute")
    if not is_psycopgs or iscoroutinefunction(connection.execute) is not awaits:
        raise TypeError(
            "a connection of psycopg 3, SQLAlchemy or Django is needed, or a session of "
            "SQLAlchemy, with connect_async an async one, "
            f"not {type(connection).__module__}.{type(connection).__qualname__}"
        )
    if connection.autocommit and not connection.info.transaction_status:
        raise ValueError(_AUTOCOMMIT)


def _with_percents(query: str, parameters: dict[str, object]) -> str:
    return query.format(**{name: f"%({name})s" for name in parameters})


def _cursor(connection: Any) -> Any:
    """A cursor whose rows are tuples: the program may have chosen other rows for its connection."""
    return connection.cursor(row_factory=sys.modules["psycopg"].rows.tuple_row)
