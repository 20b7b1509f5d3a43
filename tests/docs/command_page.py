"""The reference of the command line, docs/reference/command-line.md, made of the table of commands.

After a change, write it anew with ``python -m tests.docs.command_page``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from coordlock.cli.command_table import COMMANDS
from coordlock.cli.parser import SERVICE, Option
from tests.docs.pages import REPOSITORY

__all__ = ["PAGE", "text"]

PAGE: Final = REPOSITORY / "docs/reference/command-line.md"
HEAD: Final = """# The command line: options

[The guide](../command-line.md) shows how to use the commands, and `coordlock COMMAND --help` says
more. This page is made of the table of commands, by `python -m tests.docs.command_page`. All
commands take these, before the command's name or after it, and `-h`, `--help`:
"""


def _rows(options: Iterable[Option]) -> Iterator[str]:
    yield "| option | meaning |"
    yield "| --- | --- |"
    for option in options:
        names = ", ".join(f"`{name}`" for name in option.names[:-1])
        shown = f"`{option.names[-1]} {option.metavar}".rstrip() + "`"
        yield f"| {', '.join(filter(None, (names, shown)))} | {option.help} |"


def _lines() -> Iterator[str]:
    yield HEAD
    yield from _rows(SERVICE)
    for command in COMMANDS.values():
        yield f"\n## {command.name}\n"
        yield "```text"
        yield from command.usage
        yield "```\n"
        yield f"{command.summary}\n"
        if options := [one for one in command.options[:-1] if one not in SERVICE]:
            yield from _rows(options)


def text() -> str:
    """The page."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_lines())).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(PAGE)
