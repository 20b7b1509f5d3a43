"""coordlock on PostgreSQL: a statement for each request, and a notification for each departure.

::

    backend       the contract: queues, data, observations
    session       the session, and what it is told: departures, values, changes
    watches       departures of watched contenders, and sessions that have died
    listening     the connection that listens
    requests      requests, one after the other, over a connection of their own
    access        how to connect, by the settings; what a server must have
    guard         the question of a grant in the program's own transaction
    schema        what ``coordlock setup postgresql`` makes, from the file ``schema.sql``
    describe      what ``coordlock doctor`` shows
    options       what can be configured; pure
    errors        psycopg's errors as coordlock's; pure

The server must be PostgreSQL 13 or later.
"""

from coordlock.errors import ConfigurationError

try:
    from coordlock_postgresql.backend import (
        PostgresBackend,
        PostgresqlBackend,
        PostgresqlPsycopgBackend,
    )
except ImportError as error:
    if (error.name or "").split(".")[0] != "psycopg" and "libpq" not in str(error):
        raise
    raise ConfigurationError.missing(
        problem=f"the PostgreSQL backend needs psycopg 3 ({error})", extra="postgresql"
    ) from error

__all__ = ["PostgresBackend", "PostgresqlBackend", "PostgresqlPsycopgBackend"]
