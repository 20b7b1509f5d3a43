"""Text that comes from others, numbers and colours, made fit for a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

__all__ = [
    "age",
    "coloured",
    "dashed",
    "echo",
    "emphasised",
    "folded",
    "listed",
    "milliseconds",
    "printable",
    "terminal_width",
]

#: Wider than any terminal: a line of text stays one line.
_UNBOUNDED: Final = 1_000_000

#: The terminal's colours, by their numbers.
_NAMES: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def echo(text: object = "", *, end: str = "\n", err: bool = False) -> None:
    """Write ``text`` to stdout, or to stderr, at once."""
    file = sys.stderr if err else sys.stdout
    file.write(f"{text}{end}")
    file.flush()


def coloured(text: str, colour: str) -> str:
    """``text`` in ``colour``, and bold, where stdout is a terminal that can, and is to, show it."""
    return _painted(text, f"1;3{_NAMES.index(colour)}")


def _painted(text: str, codes: str) -> str:
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return f"\x1b[{codes}m{text}\x1b[0m" if wanted and sys.stdout.isatty() else text


def emphasised(text: str) -> str:
    """``text`` in bold where stdout is a terminal that can, and is to, show it."""
    return _painted(text, "1")


def printable(text: str) -> str:
    """``text`` with control characters escaped.

    Any program may write names and labels to the service, and must not steer the terminal.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def terminal_width(elsewhere: int = _UNBOUNDED) -> int:
    """The width of the terminal that stdout is, or of what ``COLUMNS`` says it is.

    ``elsewhere`` where it is none: what goes to another program keeps its lines.
    """
    if not sys.stdout.isatty():
        return elsewhere
    import shutil  # for commands that show text of some length

    return shutil.get_terminal_size((elsewhere, 24)).columns


def folded(
    text: str, width: int, *, taken: int = 0, indent: int = 0, breaks_words: bool = True
) -> list[str]:
    """``text`` in lines for a terminal of ``width`` columns, without what stands before them.

    That is ``taken`` columns of the first line, and ``indent`` of the others. Unless it
    ``breaks_words``, the terminal wraps a word that is too long: it can be copied as a whole.
    """
    import textwrap  # for commands that show text of some length

    heads = " " * taken, " " * indent
    # A narrower text is not readable, and textwrap would put each letter on a line of its own.
    width = max(width, max(taken, indent) + 10)
    wrapper = textwrap.TextWrapper(
        width,
        initial_indent=heads[0],
        subsequent_indent=heads[1],
        break_on_hyphens=False,
        break_long_words=breaks_words,
    )
    return [line[len(heads[number > 0]) :] for number, line in enumerate(wrapper.wrap(text))]


def listed(texts: Sequence[str]) -> str:
    """``a, b and c``; of more than five the first four, and how many there are besides."""
    shown = list(texts) if len(texts) <= 5 else [*texts[:4], f"{len(texts) - 4} others"]
    return " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


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


def dashed(value: object) -> object:
    """``value``, or a dash where there is none."""
    return "-" if value is None or value == "" else value
