"""The schema that ``coordlock setup postgresql`` makes and upgrades."""

from __future__ import annotations

from importlib.resources import files

import psycopg

from coordlock.errors import BackendError
from coordlock.settings import Settings
from coordlock_postgresql.access import SCHEMA_VERSION, Server
from coordlock_postgresql.errors import SERVICE, translate

__all__ = ["set_up", "source"]


def source() -> str:
    """The SQL that makes the schema, as a whole or not at all."""
    return f"BEGIN;\n{files(__package__).joinpath('schema.sql').read_text('utf-8')}COMMIT;\n"


def set_up(settings: Settings) -> bool:
    """Make the schema; False if it is there, in this version. Raises `BackendError`."""
    server = Server(settings)
    try:
        with server.connect(is_checked=False) as connection:
            [[found]] = connection.execute(
                "SELECT to_regprocedure('coordlock.schema_version()') IS NOT NULL"
            )
            if not found:
                connection.execute(source().encode())
                return True
            [[version]] = connection.execute("SELECT coordlock.schema_version()")
    except psycopg.Error as error:
        raise translate(error) from error
    if version != SCHEMA_VERSION:
        raise BackendError(
            SERVICE, f"the schema has version {version}, which this release cannot upgrade"
        )
    return False
