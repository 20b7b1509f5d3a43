"""What can be configured beside the common options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordlock.settings import (
    TLS_OPTIONS,
    Option,
    Settings,
    boolean,
    choice,
    duration,
    number,
    optional,
    text,
)

__all__ = ["OPTIONS", "REDLOCK", "TCP", "TLS", "UNIX"]

_duration = duration(0.0, 86_400.0)


_AUTO: Final = "auto"


def restart_delay(settings: Settings) -> float | None:
    """The seconds; None for the longest ttl."""
    delay = settings.options["restart_delay"]
    return None if delay == _AUTO else float(delay)


def _restart_delay(value: object) -> float | str:
    """Parses ``auto`` or a duration."""
    if value is None or str(value).strip().lower() == _AUTO:
        return _AUTO
    try:
        return float(_duration(value))
    except ValueError as error:
        raise ValueError(f"auto or {error}") from None


#: Of every scheme.
OPTIONS: Final[Sequence[Option]] = (
    Option("db", number(0, 1_000_000), 0, "The number of the database; a cluster has 0 alone."),
    Option(
        "restart_delay",
        _restart_delay,
        _AUTO,
        "How long nothing is granted after a restart, a failover or lost data; auto: for the "
        "longest ttl that was seen.",
    ),
    Option(
        "wait_replicas",
        number(0, 100),
        0,
        "How many replicas must have a grant, a write or a heartbeat before it counts.",
    ),
    Option(
        "allow_eviction",
        boolean,
        False,
        "Connect although the server's `maxmemory-policy` is `allkeys-*`.",
    ),
    Option(
        "compat",
        optional(choice("redis-py")),
        None,
        "`redis-py`: exclude its locks of the same names.",
    ),
)
#: Of those that connect by TCP.
TCP: Final[Sequence[Option]] = (
    Option(
        "sentinel",
        optional(text),
        None,
        "The name of the primary; the hosts are Sentinels, which know where it is.",
    ),
    Option("sentinel_username", optional(text), None, "The user at the Sentinels."),
    Option("sentinel_password", optional(text), None, "Its password.", secret=True),
)
#: Those of TLS, which the scheme turns on.
TLS: Final[Sequence[Option]] = TLS_OPTIONS[1:]
#: Of several servers that know nothing of each other.
REDLOCK: Final[Sequence[Option]] = (
    OPTIONS[0],
    Option(
        "restart_delay",
        _restart_delay,
        _AUTO,
        "How long a server has no vote after its restart; auto: for the ttl.",
    ),
    Option(
        "allow_eviction",
        boolean,
        False,
        "Let a server vote although its `maxmemory-policy` may delete locks.",
    ),
    *TLS_OPTIONS,
)
UNIX: Final[Sequence[Option]] = (
    Option("socket", optional(text), None, "The path of the server's socket."),
)
