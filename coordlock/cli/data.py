"""Data of applications: as people see them, and as JSON carries them."""

from __future__ import annotations

import base64
import sys
from typing import Final

from coordlock.cli.exits import complain
from coordlock.cli.parser import UsageError
from coordlock.cli.text import printable

__all__ = ["expect_input", "given", "in_json", "read_all", "shortened", "text_of"]

#: How much of them a table shows, in characters.
_SHOWN: Final = 40


def given(argument: str) -> bytes:
    """The bytes that the caller has given as ``argument``."""
    return argument.encode("utf-8", "surrogateescape")


def read_all(what: str) -> bytes:
    """All of stdin, which is ``what`` in messages. Raises `UsageError` where it is empty.

    An empty stdin is rarely meant: DATA was forgotten in a script, or the program before the pipe
    has failed.
    """
    expect_input(what)
    if not (data := sys.stdin.buffer.read()):
        raise UsageError(f"stdin is empty: for an empty {what} give '' as DATA")
    return data


def expect_input(what: str) -> None:
    """Tell a person at the terminal that ``what`` is to be typed."""
    if sys.stdin.isatty():
        complain(f"reading the {what} from the terminal; end with Ctrl-D on a line of its own")


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
