"""Data of applications: as people see them, and as JSON carries them."""

from __future__ import annotations

import base64
from typing import Final

from coordlock.cli.text import printable

__all__ = ["given", "in_json", "shortened", "text_of"]

#: How much of them a table shows, in characters.
_SHOWN: Final = 40


def given(argument: str) -> bytes:
    """The bytes that the caller has given as ``argument``."""
    return argument.encode("utf-8", "surrogateescape")


def text_of(data: bytes) -> str:
    """``data`` in a line of a terminal; what is no UTF-8, and no printable character, escaped."""
    return printable(data.decode("utf-8", "backslashreplace"))


def shortened(data: bytes) -> str:
    """The beginning of ``data``, in a column of a table."""
    text = text_of(data[: 4 * _SHOWN])
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def in_json(data: bytes) -> dict[str, object]:
    """The fields for ``data``: what is no UTF-8 comes in base64, under another name."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data": None, "base64": base64.b64encode(data).decode()}
