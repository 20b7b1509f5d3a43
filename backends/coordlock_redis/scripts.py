"""The Lua script of all operations, put together from files."""

from __future__ import annotations

import hashlib
import pkgutil
from dataclasses import dataclass, field
from functools import cache
from typing import Final

__all__ = ["Script", "files", "operations", "usual"]

_PACKAGE: Final = "coordlock_redis"
#: The functions, each file after those that it calls.
_FUNCTIONS: Final = ("begin", "leave", "sessions", "extend", "evictions", "list", "try", "watchers")
_OPERATIONS: Final = (
    *("open", "heartbeat", "close", "enqueue", "withdraw", "publish"),
    *("watch", "snapshot", "queues", "read", "write", "time"),
)


@dataclass(frozen=True, slots=True)
class Script:
    """A script, as Redis takes it; its first argument names the operation."""

    source: bytes
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source, usedforsecurity=False).hexdigest()
        object.__setattr__(self, "digest", digest.encode())


@cache
def usual(adapted: bytes = b"", adapted_operations: bytes = b"") -> Script:
    """The script of all schemes that have a root's state.

    ``adapted`` replaces functions in all operations, ``adapted_operations`` in its own.
    """
    parts = (
        files(_PACKAGE, *_FUNCTIONS),
        adapted,
        files(_PACKAGE, "expire"),
        adapted_operations,
        operations(_PACKAGE, *_OPERATIONS),
    )
    return Script(b"\n".join(parts))


def files(package: str, *names: str) -> bytes:
    """The files of these names in the package's folder ``lua``."""
    found = (pkgutil.get_data(package, f"lua/{name}.lua") for name in names)
    return b"\n".join(text for text in found if text is not None)


def operations(package: str, *names: str) -> bytes:
    """The same, each for the operation of its name alone."""
    return b"\n".join(
        b"if ARGV[1] == '%b' then\n%b\nend" % (name.encode(), files(package, name))
        for name in names
    )
