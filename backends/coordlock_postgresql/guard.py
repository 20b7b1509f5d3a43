"""Questions to the database in the transaction of the program: psycopg, SQLAlchemy, Django."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from inspect import iscoroutinefunction
from typing import Any

__all__ = ["Statement", "ask", "ask_async"]

#: A query, and its parameters, which stand in braces in it.
Statement = tuple[str, dict[str, object]]
#: Yields what a call has returned, which with asyncio is awaited, and gets its result.
_Steps = Generator[Any, Any, str]


def ask(connection: Any, statements: Sequence[Statement]) -> str:
    """The answer to the last of ``statements``, or ``elsewhere`` of an earlier one.

    Raises ValueError for a connection without a transaction.
    """
    steps, result = _steps(connection, statements, awaits=False), None
    try:
        while True:
            result = steps.send(result)
    except StopIteration as stop:
        return str(stop.value)


async def ask_async(connection: Any, statements: Sequence[Statement]) -> str:
    """The same with asyncio."""
    steps, result = _steps(connection, statements, awaits=True), None
    try:
        while True:
            result = await steps.send(result)
    except StopIteration as stop:
        return str(stop.value)


def _steps(connection: Any, statements: Sequence[Statement], *, awaits: bool) -> _Steps:
    own: Any = connection
    cursor: Any = None
    is_sqlalchemys = any(
        kind.__module__.startswith("sqlalchemy.") for kind in type(connection).__mro__
    )
    if is_sqlalchemys:
        if hasattr(connection, "get_bind"):  # a session
            own = yield connection.connection()
        driver = getattr(own, "sync_connection", own).connection.dbapi_connection
        _refuse_autocommit(getattr(driver, "autocommit", False))
    elif hasattr(connection, "in_atomic_block"):  # Django's
        _refuse_autocommit(connection.get_autocommit())
        cursor = connection.cursor()
    else:
        _refuse_other_kinds(connection, awaits=awaits)
        # The program may have chosen other rows than tuples for its connection.
        cursor = connection.cursor(row_factory=sys.modules["psycopg"].rows.tuple_row)
    answer = ""
    for query, parameters in statements:
        if is_sqlalchemys:
            text = sys.modules["sqlalchemy"].text(_with_names(":{}", query, parameters))
            answer = (yield own.execute(text, parameters)).scalar_one()
        else:
            yield cursor.execute(_with_names("%({})s", query, parameters), parameters)
            [answer] = yield cursor.fetchone()
        if answer == "elsewhere":
            break
    return answer


def _with_names(form: str, query: str, parameters: dict[str, object]) -> str:
    return query.format(**{name: form.format(name) for name in parameters})


def _refuse_autocommit(autocommit: bool) -> None:
    if autocommit:
        raise ValueError("the connection is in autocommit mode: begin a transaction first")


def _refuse_other_kinds(connection: Any, *, awaits: bool) -> None:
    is_psycopgs = hasattr(connection, "info") and hasattr(connection, "execute")
    if not is_psycopgs or iscoroutinefunction(connection.execute) is not awaits:
        raise TypeError(
            "a connection of psycopg 3, SQLAlchemy or Django is needed, or a session of "
            "SQLAlchemy, with connect_async an async one, "
            f"not {type(connection).__module__}.{type(connection).__qualname__}"
        )
    _refuse_autocommit(connection.autocommit and not connection.info.transaction_status)
