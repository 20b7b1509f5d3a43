"""Silence for gRPC's own log, which goes to standard error past Python's `logging`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["quiet"]

_VARIABLE: Final = "GRPC_VERBOSITY"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep gRPC from logging what coordlock's errors say, such as failed handshakes.

    gRPC reads the variable ``GRPC_VERBOSITY`` once, when it is imported or makes the first channel,
    depending on its release. A user's own setting stays, and child processes inherit nothing.
    """
    if _VARIABLE in os.environ:
        yield
        return
    os.environ[_VARIABLE] = "NONE"
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
