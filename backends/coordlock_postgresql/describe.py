"""What `coordlock doctor` shows of a PostgreSQL: its version, and what may delay or lose locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import Connection

from coordlock.backend import ServiceInfo
from coordlock.runtime.promise import Promise, in_thread
from coordlock_postgresql.access import Server
from coordlock_postgresql.errors import translate
from coordlock_postgresql.listening import ARRIVAL_S, Listening

__all__ = ["describe"]

#: Of the server's connections, how many should be free.
_FREE_CONNECTIONS = 10
#: Minutes for which a snapshot may be open.
_OLD_SNAPSHOT_M = 10


def describe(server: Server, listening: Listening | None) -> Promise[ServiceInfo]:
    """Ask the server, over a connection of its own."""

    def ask() -> ServiceInfo:
        try:
            with server.connect() as connection:
                found = list(_findings(connection, listening))
                version = str(connection.info.server_version)
        except psycopg.Error as error:
            raise translate(error) from None
        warnings = tuple(text for is_well, text in found if not is_well)
        notes = tuple(text for is_well, text in found if is_well)
        shown = f"{int(version[:-4])}.{int(version[-4:])}"
        return ServiceInfo("postgresql", shown, server.names, warnings, notes)

    return in_thread("coordlock-postgresql-describe", ask)


def _findings(
    connection: Connection[Any], listening: Listening | None
) -> Iterator[tuple[bool, str]]:
    if listening is None:
        yield True, "listen=off: waiting clients look for departures every 20 ms to 1 s"
    elif listening.tested.wait(2 * ARRIVAL_S) and listening.problem:
        yield False, listening.problem
    [[used, most]] = connection.execute(
        "SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity "
        "WHERE backend_type = 'client backend'"
    )
    text = f"{used} of {most} connections are in use; each client takes three"
    yield most - used >= _FREE_CONNECTIONS, text
    for pid, minutes, application in connection.execute(
        "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::int / 60, "
        "application_name FROM pg_stat_activity "
        "WHERE backend_xmin IS NOT NULL AND datname = current_database() "
        "AND xact_start < clock_timestamp() - make_interval(mins => %s) "
        "ORDER BY age(backend_xmin) DESC LIMIT 1",
        (_OLD_SNAPSHOT_M,),
    ):
        yield (
            False,
            f"process {pid} ({application!r}) has had a transaction open for {minutes} minutes: "
            "VACUUM removes nothing meanwhile, and locks become slower",
        )
    [[is_well]] = connection.execute(
        "SELECT seqcache = 1 AND NOT seqcycle AND seqincrement = 1 AND seqmax <= 549755813887 "
        "FROM pg_sequence WHERE seqrelid = 'coordlock.token'::regclass"
    )
    if not is_well:
        yield (
            False,
            "the sequence coordlock.token was altered, and tokens may not grow: it needs "
            "INCREMENT 1 MAXVALUE 549755813887 CACHE 1 NO CYCLE",
        )
    [[standbys, names]] = connection.execute(
        "SELECT count(*), current_setting('synchronous_standby_names') FROM pg_stat_replication"
    )
    if standbys and not names:
        yield (
            False,
            "replication is asynchronous: after a failover every grant is lost, and two primaries "
            "could grant the same lock; set synchronous_standby_names",
        )
