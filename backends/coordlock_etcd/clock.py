"""The cluster's own time: etcd's requests tell none, but its answers over HTTP have a date."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from coordlock.backend.tls import tls_context
from coordlock.runtime.promise import Promise, in_thread

__all__ = ["time_of"]


def time_of(
    hosts: Sequence[str], options: Mapping[str, Any], timeout: float
) -> Promise[float | None]:
    """The time of the first of ``hosts`` that tells one, in seconds since 1970; None if none does.

    It is that of ``GET /version``, which needs no login. ``options`` are those of the URL.
    """
    seconds = timeout / max(1, len(hosts))
    return in_thread("coordlock-etcd-time", lambda: _first(hosts, options, seconds))


def _first(hosts: Sequence[str], options: Mapping[str, Any], timeout: float) -> float | None:
    context = tls_context(options)
    for host in hosts:
        try:
            return _time(host, context, timeout)
        except (OSError, http.client.HTTPException, ValueError, TypeError):
            continue  # it serves no HTTP there, or is down
    return None


def _time(host: str, context: ssl.SSLContext | None, timeout: float) -> float:
    connection = (
        http.client.HTTPConnection(host, timeout=timeout)
        if context is None
        else http.client.HTTPSConnection(host, timeout=timeout, context=context)
    )
    try:
        connection.request("GET", "/version")
        return parsedate_to_datetime(connection.getresponse().getheader("Date") or "").timestamp()
    finally:
        connection.close()
