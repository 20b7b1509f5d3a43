"""What can be configured beside the common options: libpq's names, as URLs have them already."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

from coordlock.errors import ConfigurationError
from coordlock.settings import Option, Settings, choice, optional, text

__all__ = ["OPTIONS", "conninfo", "place"]

_LIBPQ: Final = {
    "host": "The directory of the server's socket on this machine, or a host.",
    "sslmode": "How to use TLS; `verify-full` also checks the server's name.",
    "sslrootcert": "File of the certificate authority (PEM); `system` for the system's.",
    "sslcert": "File of the client's certificate (PEM).",
    "sslkey": "File of the client's private key (PEM).",
    "passfile": "The file of passwords, instead of `~/.pgpass`.",
    "channel_binding": "`require` ties the password's proof to TLS.",
    "gssencmode": "Whether to encrypt by Kerberos.",
    "options": "Command-line options for the server.",
    "application_name": "What the server's views show; `coordlock` by default.",
}
#: Libpq would tell a misspelt value from a server that is away by its text alone.
_CHOICES: Final = {
    "sslmode": choice("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "channel_binding": choice("disable", "prefer", "require"),
    "gssencmode": choice("disable", "prefer", "require"),
}


def _listen(value: object) -> str:
    """Parses ``off``, or a host with a port, or several."""
    places = str(value).split(",")
    if value != "off" and not all(re.fullmatch(r"[^\s@/]+:[0-9]{1,5}", each) for each in places):
        raise ValueError("off, or host:port, or several of them, separated by commas")
    return str(value)


OPTIONS: Final[Sequence[Option]] = (
    *(Option(name, optional(_CHOICES.get(name, text)), None, doc) for name, doc in _LIBPQ.items()),
    Option(
        "target_session_attrs",
        choice("primary", "read-write", "any"),
        "primary",
        "Which of several hosts is used; a standby is refused in any case.",
    ),
    Option(
        "listen",
        optional(_listen),
        None,
        "`host:port` for the connection that listens, past a pooler; `off` to ask again and again.",
    ),
)


def place(settings: Settings) -> tuple[str, str]:
    """The database, empty for libpq's default, and the root: the path is both."""
    database, _, root = settings.root.lstrip("/").partition("/")
    return database, "/" + (root or "coordlock")


def conninfo(settings: Settings, *, listens: bool = False) -> Mapping[str, Any]:
    """What libpq is given, for the connection that ``listens`` or another one."""
    given = {name: settings.options[name] for name in _LIBPQ}
    hosts: Sequence[str] = settings.hosts
    if listens and settings.options["listen"]:
        hosts = settings.options["listen"].split(",")
    if hosts and given["host"]:
        raise ConfigurationError("option 'host': the URL names a host already")
    pairs = [host.rpartition(":") for host in hosts]
    if pairs:
        given["host"] = ",".join(host.strip("[]") for host, _, _ in pairs)
        given["port"] = ",".join(port for _, _, port in pairs)
    seconds = ceil(settings.request_timeout)
    database, _ = place(settings)
    given |= {
        "dbname": database or None,
        "user": settings.username or None,
        "password": settings.password,
        "application_name": given["application_name"] or "coordlock",
        # Whatever the database's is, and PGCLIENTENCODING: answers are JSON.
        "client_encoding": "utf8",
        "target_session_attrs": settings.options["target_session_attrs"],
        "connect_timeout": max(2, min(ceil(settings.connect_timeout), seconds)),
        # A server that is gone without a word is noticed, also while nothing is sent.
        "keepalives_idle": seconds,
        "keepalives_interval": seconds,
        "keepalives_count": 3,
        "tcp_user_timeout": seconds * 1000,
    }
    return {name: value for name, value in given.items() if value is not None}
