"""A WSGI application for gunicorn's --preload: the module is imported before its workers fork."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from tests.frameworks.apps.jobs import book


def application(
    environ: dict[str, object], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    """Book what the path says, and answer with the worker's process id."""
    pid = book(int(str(environ["PATH_INFO"]).strip("/")))
    assert pid == os.getpid()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(pid).encode()]
