"""Lock names: any non-empty Unicode, escaped so that no name can leave its queue or collide.

Letters, digits, ``-``, ``_``, ``.`` and ``~`` stand for themselves; every other byte of the UTF-8
text becomes ``%XX``. The names ``.`` and ``..`` are escaped whole, for services with paths.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from coordlock.errors import InvalidName

__all__ = ["MAX_NAME_BYTES", "check_name", "escape", "unescape"]

MAX_NAME_BYTES: Final = 255


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


def escape(name: str) -> str:
    """``name`` as one path component: no slash, no NUL, no dots alone; ASCII. One to one."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="")


def unescape(component: str) -> str | None:
    """The name that `escape` made ``component`` from, or None when it made no such component."""
    name = unquote(component, errors="surrogateescape")
    try:
        return name if name and escape(name) == component else None
    except UnicodeEncodeError:
        return None
