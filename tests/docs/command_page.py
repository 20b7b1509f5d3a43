"""The reference of the command line, docs/reference/command-line.md, made of the table of commands.

After a change, write it anew with ``python -m tests.docs.command_page``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from coordlock.cli.command_table import COMMANDS
from coordlock.cli.parser import SERVICE, Command, Option
from tests.docs.pages import REPOSITORY

__all__ = ["PAGE", "text"]

PAGE: Final = REPOSITORY / "docs/reference/command-line.md"
#: An option that as many commands take is described once.
SHARED: Final = 3
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


def _own(command: Command) -> list[Option]:
    return [option for option in command.options[:-1] if option not in SERVICE]


def _lines() -> Iterator[str]:
    yield HEAD
    yield from _rows(SERVICE)
    uses = Counter(option for command in COMMANDS.values() for option in _own(command))
    shared = [option for option, count in uses.items() if count >= SHARED]
    yield "\n## Options of several commands\n"
    yield from _rows(shared)
    for command in COMMANDS.values():
        yield f"\n## {command.name}\n"
        yield "```text"
        yield from command.usage
        yield "```\n"
        yield f"{command.summary}\n"
        if own := [option for option in _own(command) if option not in shared]:
            yield from _rows(own)
        if others := [option for option in _own(command) if option in shared]:
            yield f"\nAlso {', '.join(f'`{option.names[-1]}`' for option in others)}.\n"


def text() -> str:
    """The page."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_lines())).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(PAGE)
