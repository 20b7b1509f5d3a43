"""How to connect, by the settings, and what a server must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg import Connection

from coordlock.errors import BackendError, BackendUnavailable
from coordlock.settings import Settings
from coordlock_postgresql.errors import SERVICE, SETUP
from coordlock_postgresql.options import conninfo

__all__ = ["SCHEMA_VERSION", "Server", "check", "schema_version"]

#: The version of ``schema.sql``.
SCHEMA_VERSION: Final = 1
_OLDEST: Final = 13


class Server:
    """Makes connections to the primary."""

    def __init__(self, settings: Settings) -> None:
        self._usual: Final = conninfo(settings)
        self._listening: Final = conninfo(settings, listens=True)
        self.timeout: Final = settings.request_timeout
        self.names: Final = settings.hosts

    def connect(self, *, listens: bool = False, is_checked: bool = True) -> Connection[Any]:
        """A connection in autocommit to a server that is fit; it may block for the timeouts."""
        given: Mapping[str, Any] = self._listening if listens else self._usual
        # Nothing is prepared: transactions of a pooler may come to another server process each.
        connection = psycopg.connect(**given, autocommit=True, prepare_threshold=None)
        try:
            if is_checked:
                check(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def check(connection: Connection[Any]) -> None:
    """Raise `BackendError` for a server that is too old, a standby, or without the schema."""
    major = connection.info.server_version // 10000
    if major < _OLDEST:
        raise BackendError(
            SERVICE, f"the server is PostgreSQL {major}: coordlock needs {_OLDEST} or later"
        )
    [[is_standby]] = connection.execute("SELECT pg_catalog.pg_is_in_recovery()")
    if is_standby:
        raise BackendUnavailable(
            SERVICE, "the server is a standby, which may be late: give the primary, or all hosts"
        )
    version = schema_version(connection)
    if version is None:
        database = connection.info.dbname
        raise BackendError(SERVICE, f"the database {database!r} has no schema coordlock: {SETUP}")
    if version != SCHEMA_VERSION:
        advice = SETUP if version < SCHEMA_VERSION else "update coordlock here, too"
        raise BackendError(
            SERVICE,
            f"the schema coordlock has version {version}, and this release needs "
            f"{SCHEMA_VERSION}: {advice}",
        )


def schema_version(connection: Connection[Any]) -> int | None:
    """The version of the database's schema; None without one."""
    found = connection.execute(
        "SELECT FROM pg_catalog.pg_proc "
        "WHERE pronamespace = pg_catalog.to_regnamespace('coordlock') LIMIT 1"
    ).fetchone()
    if found is None:
        return None
    [[version]] = connection.execute("SELECT coordlock.schema_version()")
    return int(version)
