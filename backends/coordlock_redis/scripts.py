"""The Lua scripts: each is a file beside what all of them begin with."""

from __future__ import annotations

import hashlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import Final

__all__ = ["SCRIPTS", "Script", "script"]

SCRIPTS: Final = (
    *("open", "heartbeat", "close", "enqueue", "withdraw", "publish"),
    *("watch", "snapshot", "queues", "read", "write", "time"),
    *("redlock_lock", "redlock_extend", "redlock_unlock"),
)
#: What some of them need besides: Redis makes each function anew whenever a script is run.
_PARTS: Final = {
    **dict.fromkeys(("open", "heartbeat"), ("promotions", "evictions", "extend")),
    "snapshot": ("list",),
    "enqueue": ("promotions", "list", "try", "watchers"),
    "watch": ("watchers",),
}


@dataclass(frozen=True, slots=True)
class Script:
    """One script, as Redis takes it."""

    name: bytes
    source: bytes
    digest: bytes


@cache
def script(name: str, compat: bool = False) -> Script:
    """The script of that name; with ``compat``, for clients that share names with redis-py."""
    if name.startswith("redlock_"):
        parts = []
    else:
        parts = ["begin", "leave", *(["compat"] if compat else []), "sessions", "expire"]
    source = b"\n".join(map(_text, [*parts, *_PARTS.get(name, ()), name]))
    digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    return Script(name.encode(), source, digest.encode())


@cache
def _text(name: str) -> bytes:
    text = pkgutil.get_data("coordlock_redis", f"lua/{name}.lua")
    assert text is not None
    return text
