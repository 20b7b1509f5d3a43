"""The cluster's own time: etcd's requests tell none, but its answers over HTTP have a date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

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
    scheme = "http" if context is None else "https"
    # As gRPC's channels: proxies are for the web.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    for host in hosts:
        try:
            with opener.open(f"{scheme}://{host}/version", timeout=timeout) as answer:
                return parsedate_to_datetime(answer.headers["Date"]).timestamp()
        except (OSError, HTTPException, ValueError, TypeError):
            continue  # it serves no HTTP there, or is down
    return None
