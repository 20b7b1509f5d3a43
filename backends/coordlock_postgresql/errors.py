"""psycopg's errors, as coordlock's. The only place where they are judged."""

from __future__ import annotations

from typing import Final

from psycopg import errors

from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    SessionLost,
    TooLarge,
)

__all__ = ["SERVICE", "client_closed", "translate"]

SERVICE: Final = "postgresql"

#: The state of an error by which the schema's functions say that a session has ended.
SESSION_LOST: Final = "CLOST"
_SETUP: Final = "run `coordlock setup postgresql`, with a role that may create it"
#: What to do about a refusal, by its class.
_ADVICE: Final = (
    (errors.InvalidSchemaName, f"the database has no schema coordlock: {_SETUP}"),
    (
        (errors.UndefinedFunction, errors.UndefinedTable, errors.UndefinedColumn),
        "the schema coordlock was altered, or made by an unreleased version: DROP SCHEMA coordlock "
        f"CASCADE, which ends all locks and deletes all values, then {_SETUP}",
    ),
    (errors.InvalidCatalogName, "the database is the first part of the URL's path"),
    (errors.TooManyConnections, "each client takes three connections: see max_connections"),
    (errors.DiskFull, "the server's disk is full"),
)
_LOGIN: Final = (
    errors.InvalidPassword,
    errors.InvalidAuthorizationSpecification,
    errors.InsufficientPrivilege,
)
#: Refused now, and perhaps not the next time, by the first two characters of their states: broken
#: connections, lack of resources, an operator's intervention, failing disks, rolled back.
_PASSING: Final = ("08", "53", "57", "58", "40", "55")
#: By libpq, which gives no state for what it finds before there is a connection.
_REFUSED: Final = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "certificate verify failed",
    "does not match host name",
    "requires a valid client certificate",
)
#: The same, from a server that speaks something else.
_FOREIGN: Final = ("invalid response to SSL negotiation", "expected authentication request")


def client_closed() -> BackendUnavailable:
    """Why a request is not sent any more."""
    return BackendUnavailable(SERVICE, "the client is closed")


def translate(error: BaseException) -> BackendError:
    """The error for a request that raised ``error``."""
    if isinstance(error, BackendError):
        return error
    # Without the statement and where in it.
    primary = error.diag.message_primary if isinstance(error, errors.Error) else None
    text = " ".join((primary or str(error) or type(error).__name__).split())
    advice = next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "")
    if isinstance(error, errors.InsufficientPrivilege) and "schema coordlock" in text:
        advice = "the role needs GRANT USAGE ON SCHEMA coordlock"
    text += f"; {advice}" if advice else ""
    state = getattr(error, "sqlstate", None) or ""
    if state == SESSION_LOST:
        return SessionLost(SERVICE, text)
    if isinstance(error, _LOGIN) or any(refused in text for refused in _REFUSED):
        return AuthenticationFailed(SERVICE, text)
    if state[:2] == "54" or isinstance(error, MemoryError):
        return TooLarge(SERVICE, text)
    if not state and any(refused in text for refused in _FOREIGN):
        return BackendError(SERVICE, f"{text}; is this a PostgreSQL, and not another service?")
    if not state and "does not exist" in text:  # of a database or a role
        return BackendError(SERVICE, text)
    if not isinstance(error, errors.Error) or not state or state[:2] in _PASSING:
        return BackendUnavailable(SERVICE, text)
    if isinstance(error, errors.UniqueViolation):  # of a contender that a transaction keeps
        return BackendUnavailable(SERVICE, text)
    return BackendError(SERVICE, text)
