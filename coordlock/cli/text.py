"""Text that comes from others, numbers and colours, made fit for a terminal."""

from __future__ import annotations

import os
import sys

import click

__all__ = ["age", "coloured", "milliseconds", "printable"]


def coloured(text: str, colour: str, *, bold: bool = False) -> str:
    """``text`` in ``colour`` where stdout is a terminal and ``NO_COLOR`` is not set."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return click.style(text, fg=colour, bold=bold)
    return text


def printable(text: str) -> str:
    """``text`` with control characters escaped.

    Names and labels come from whoever writes to the service, and must not steer the terminal.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def age(seconds: float | None) -> str:
    """``12s``, ``3m20s``, ``2h05m``, ``4d03h``; a dash where it isn't known."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


def milliseconds(seconds: float) -> str:
    """``1.25 ms``, ``130 ms``: three significant digits."""
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
