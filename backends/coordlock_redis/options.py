"""What can be configured beside the common options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordlock.settings import (
    TLS_OPTIONS,
    Option,
    Settings,
    duration,
    number,
    optional,
    text,
)

__all__ = ["DB", "OPTIONS", "TCP", "TLS", "UNIX", "delay_or_auto", "restart_delay"]

_duration = duration(0.0, 86_400.0)


_AUTO: Final = "auto"


def restart_delay(settings: Settings) -> float:
    """The seconds."""
    delay = settings.options["restart_delay"]
    return settings.ttl if delay == _AUTO else float(delay)


def delay_or_auto(value: object) -> float | str:
    """Parses ``auto`` or a duration."""
    if value is None or str(value).strip().lower() == _AUTO:
        return _AUTO
    try:
        return float(_duration(value))
    except ValueError as error:
        raise ValueError(f"auto or {error}") from None


DB: Final = Option(
    "db", number(0, 1_000_000), 0, "The number of the database; a cluster has 0 alone."
)
#: Of every scheme whose servers know of each other.
OPTIONS: Final[Sequence[Option]] = (
    DB,
    Option(
        "restart_delay",
        delay_or_auto,
        _AUTO,
        "How long nothing is granted after a restart, a failover or lost data; auto: for the ttl. "
        "The largest of all clients counts.",
    ),
    Option(
        "wait_replicas",
        number(0, 100),
        0,
        "How many replicas must have a grant, a write or a heartbeat before it counts.",
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
UNIX: Final[Sequence[Option]] = (
    Option("socket", optional(text), None, "The path of the server's socket."),
)
