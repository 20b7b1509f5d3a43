"""Lock names: any non-empty Unicode, escaped so that no name can leave its queue or collide.

Letters, digits, ``-``, ``_``, ``.`` and ``~`` stand for themselves; every other byte of the UTF-8
text becomes ``%XX``. The names ``.`` and ``..`` are escaped whole, for services with paths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

from coordlock.errors import InvalidName

__all__ = [
    "MAX_NAME_BYTES",
    "check_name",
    "escape",
    "file_name",
    "internal",
    "is_internal",
    "joined",
    "name_in",
    "unescape",
]

MAX_NAME_BYTES: Final = 255
_SHOWN: Final = 10
_INTERNAL: Final = "\udc40"
#: Longer escaped names are hashed. File names may have 255 bytes, on some file systems 143.
_LONGEST_FILE_NAME: Final = 140


def check_name(name: str) -> str:
    """Return ``name`` when it can name a lock, else raise `InvalidName`.

    Names are compared as they are: no case folding, no Unicode normalization.
    """
    if not isinstance(name, str):
        raise InvalidName(repr(name), f"must be a str, not {type(name).__name__}")
    if not name:
        raise InvalidName(name, "is empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidName(name, "holds a lone surrogate, which UTF-8 cannot encode") from None
    if size > MAX_NAME_BYTES:
        raise InvalidName(name, f"takes {size} bytes as UTF-8; the limit is {MAX_NAME_BYTES}")
    return name


def internal(name: str) -> str:
    """The queue ``name`` of coordlock's own, whose component is ``@name``.

    No lock has such a name, because `check_name` refuses lone surrogates. No name is escaped to
    such a component, so no release lists it.
    """
    return _INTERNAL + name


def is_internal(name: str) -> bool:
    """Whether `internal` made ``name``."""
    return name.startswith(_INTERNAL)


def joined(names: Iterable[str]) -> str:
    """``names`` in a message: the first ten, and how many more there are."""
    all_of_them = list(names)
    more = len(all_of_them) - _SHOWN
    shown = ", ".join(all_of_them[:_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def escape(name: str) -> str:
    """``name`` as one path component: no slash, no NUL, no dots alone; ASCII. One to one."""
    if name.startswith(_INTERNAL):
        return "@" + name[1:]
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="")


def file_name(name: str, *, folds: bool = False) -> str:
    """`escape` for names of files, which must not be long. No two names share a file name.

    With ``folds``, not even on a file system that takes ``a`` and ``A`` for the same name.
    """
    escaped = escape(name)
    if not 0 < len(escaped) <= _LONGEST_FILE_NAME or (folds and escaped != escaped.lower()):
        from hashlib import sha256  # seldom needed, and not cheap to import

        escaped = (
            "=" + sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        )  # no escaped name has a "="
    return escaped


def name_in(key: str) -> str:
    """The name whose `escape` is the last component of ``key``. Raises `InvalidName`."""
    return check_name(unescape(key.rpartition("/")[2]) or "")


def unescape(component: str) -> str | None:
    """The name that `escape` made ``component`` from, or None when it made no such component."""
    name = unquote(component, errors="surrogateescape")
    try:
        return name if name and escape(name) == component else None
    except UnicodeEncodeError:
        return None
