"""The schema that ``coordlock setup postgresql`` makes and upgrades."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

import psycopg
from psycopg import Connection, IsolationLevel

from coordlock.errors import ConfigurationError
from coordlock.settings import Settings
from coordlock_postgresql.access import SCHEMA_VERSION, Server, check, schema_version
from coordlock_postgresql.errors import translate

__all__ = ["set_up", "source"]

#: The unit of time by which epochs are dated.
SHORTEST_PAUSE_S: Final = 60.0
#: The key of the advisory lock that `setup` takes while it makes the schema: "coordloc".
_LOCK: Final = int.from_bytes(b"coordloc", "big")
_SOURCE: Final = files(__package__) / "schema.sql"


def source() -> str:
    """The SQL that makes the schema, as a whole or not at all."""
    return f"BEGIN;\n{_SOURCE.read_text('utf-8')}COMMIT;\n"


def set_up(settings: Settings, *, max_ttl: float | None = None, restored: bool = False) -> bool:
    """Make or upgrade the schema; False if it is there. Raises `BackendError`.

    Args:
        settings: of a client to this database.
        max_ttl: the longest ttl, for which nothing is granted after a failover, at least 60 s; None
            to keep it.
        restored: begin a new epoch, because the data is from a backup.
    """
    if max_ttl is not None and max_ttl < SHORTEST_PAUSE_S:
        raise ConfigurationError(
            f"--max-ttl must be at least {SHORTEST_PAUSE_S:g}s: after a failover tokens are dated "
            "by the minute"
        )
    server = Server(settings)
    try:
        with server.connect(is_checked=False) as connection:
            # Whatever the role's defaults are: what is read after the lock is newer than it.
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            connection.read_only = False
            with connection.transaction():
                # Replicas of a program may set up at the same time.
                connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", (_LOCK,))
                return _set_up(connection, max_ttl, restored=restored)
    except psycopg.Error as error:
        raise translate(error) from error


def _set_up(connection: Connection[Any], max_ttl: float | None, *, restored: bool) -> bool:
    version = schema_version(connection)
    is_old = version is None or version < SCHEMA_VERSION
    if is_old:
        connection.execute(_SOURCE.read_bytes())
    check(connection)
    if restored or max_ttl is not None:
        # No session begins meanwhile, with what it has read of the epoch.
        connection.execute("LOCK TABLE coordlock.epoch IN EXCLUSIVE MODE")
    if restored:  # so that a new epoch begins
        for table in ("epoch", "session"):
            connection.execute(f"UPDATE coordlock.{table} SET timeline = 'restored'".encode())
    if max_ttl is not None:
        [[longest]] = connection.execute(
            "SELECT extract(epoch FROM max(ttl))::float FROM coordlock.session WHERE NOT ended"
        )
        if longest is not None and longest > max_ttl:
            raise ConfigurationError(
                f"--max-ttl {max_ttl:g}s is shorter than the ttl={longest:g}s of a session: close "
                "its client first; a dead client's session goes a minute after it expired, when "
                "another one connects"
            )
        connection.execute(
            "UPDATE coordlock.epoch SET pause = make_interval(secs => %s)", (max_ttl,)
        )
    return is_old
