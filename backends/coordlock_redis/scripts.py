"""The Lua scripts, each put together from files."""

from __future__ import annotations

import hashlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

__all__ = ["NAMES", "SCRIPTS", "File", "Script", "Scripts", "parts"]

#: A package that has a folder ``lua``, and the file's name there.
File = tuple[str, str]

NAMES: Final = (
    *("open", "heartbeat", "close", "enqueue", "withdraw", "publish"),
    *("watch", "snapshot", "queues", "read", "write", "time"),
)
_PACKAGE: Final = "coordlock_redis"
#: What some scripts need besides: Redis makes each function anew whenever a script is run.
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


class Scripts:
    """Scripts by their names; ``files`` are those of one script, in their order."""

    def __init__(self, files: Callable[[str], Sequence[File]]) -> None:
        self._files: Final = files
        self._made: dict[str, Script] = {}

    def __getitem__(self, name: str) -> Script:
        if (made := self._made.get(name)) is None:
            source = b"\n".join(_text(*file) for file in self._files(name))
            digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
            made = self._made[name] = Script(name.encode(), source, digest.encode())
        return made


def parts(name: str) -> tuple[list[File], File, File]:
    """The files of a usual script: functions, what ends expired sessions, and the operation."""
    functions = ["begin", "leave", "sessions", *_PARTS.get(name, ())]
    return [(_PACKAGE, one) for one in functions], (_PACKAGE, "expire"), (_PACKAGE, name)


def _usual(name: str) -> list[File]:
    functions, expire, operation = parts(name)
    return [*functions, expire, operation]


#: Those of all schemes that have a root's state.
SCRIPTS: Final = Scripts(_usual)


@cache
def _text(package: str, name: str) -> bytes:
    text = pkgutil.get_data(package, f"lua/{name}.lua")
    assert text is not None
    return text
