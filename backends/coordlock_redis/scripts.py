"""The Lua script of all operations, put together from files."""

from __future__ import annotations

import pkgutil
from functools import cache
from typing import Final

__all__ = ["files", "usual"]

_PACKAGE: Final = "coordlock_redis"


@cache
def usual(replaced: bytes = b"") -> bytes:
    """The script of all schemes that have a root's state; its first argument names the operation.

    ``replaced`` has other functions in place of some.
    """
    own = files(_PACKAGE, "root", "queues", "sessions")
    return b"\n".join(
        (
            own,
            replaced,
            files(_PACKAGE, "session_operations", "queue_operations", "data_operations"),
        )
    )


def files(package: str, *names: str) -> bytes:
    """The files of these names in the package's folder ``lua``."""
    found = (pkgutil.get_data(package, f"lua/{name}.lua") for name in names)
    return b"\n".join(text for text in found if text is not None)
