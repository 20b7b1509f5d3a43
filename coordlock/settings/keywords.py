"""The options of `connect` as type checkers and editors see them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypedDict

from coordlock.settings import Duration, Reach

__all__ = ["Options"]


class Options(TypedDict, total=False):
    """Where the service is, the common options, and those of the backends that come along.

    Options of further backends are given in a URL or in a mapping, which take any.
    """

    url: str
    backend: str
    hosts: str | Sequence[str]
    root: str
    username: str | None
    password: str | None
    password_file: str | os.PathLike[str]
    ttl: Duration
    timeout: Duration | None
    max_hold: Duration | None
    deadlock_delay: Duration | None
    connect_timeout: Duration
    request_timeout: Duration
    fail_fast: bool | str
    label: str
    reach: Reach
    tls: bool | str
    ca: str
    cert: str
    key: str
    leading_slash: bool | str
    auth: Literal["digest", "sasl"]
    acl: Literal["creator", "open"]
    nodes: Literal["kazoo", "curator", "curator-rw", "curator-latch"]
    trust_filesystem: bool | str
    host: str
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
    sslrootcert: str
    sslcert: str
    sslkey: str
    passfile: str
    channel_binding: Literal["disable", "prefer", "require"]
    gssencmode: Literal["disable", "prefer", "require"]
    options: str
    application_name: str
    target_session_attrs: Literal["primary", "read-write", "any"]
    listen: str
    db: int
    restart_delay: Duration
    wait_replicas: int
    compat: Literal["redis-py"]
    sentinel: str
    sentinel_username: str
    sentinel_password: str
    socket: str
