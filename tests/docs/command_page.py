"""The reference of the command line, docs/reference/command-line.md, made of the table of commands.

After a change, write it anew with ``python -m tests.docs.command_page``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from coordlock.cli.command_table import COMMANDS, below
from coordlock.cli.parser import SERVICE, Command, Option
from tests.docs.pages import REPOSITORY

__all__ = ["PAGE", "text"]

PAGE: Final = REPOSITORY / "docs/reference/command-line.md"
#: An option that as many commands take is described once.
SHARED: Final = 2
HEAD: Final = """# The command line: options

[The guide](../command-line.md) shows how to use the commands, and `coordlock COMMAND --help` says
more.

All commands take these, before the command's name or after it, and `-h`, `--help`:
"""


def _items(options: Iterable[Option]) -> Iterator[str]:
    for option in options:
        *others, last = option.names
        names = [*others, f"{last} {option.metavar}".rstrip()]
        yield f"- {', '.join(f'`{name}`' for name in names)}: {option.help}"


def _own(command: Command) -> list[Option]:
    return [option for option in command.options[:-1] if option not in SERVICE]


def _lines() -> Iterator[str]:
    yield HEAD
    yield from _items(SERVICE)
    users: dict[Option, set[str]] = {}  # by the first word of each command
    for command in COMMANDS.values():
        for option in _own(command):
            users.setdefault(option, set()).add(command.path.partition(" ")[0])
    shared = [option for option, commands in users.items() if len(commands) >= SHARED]
    yield "\nOptions of several commands:\n"
    yield from _items(shared)
    for command in COMMANDS.values():
        if below(command) and not _own(command):
            continue  # its commands follow
        first, *other_forms = (form.replace(" [OPTIONS]", "") for form in command.usage)
        yield f"\n## {first.removeprefix('coordlock ') if command.path else command.name}\n"
        yield " ".join([command.summary, *(f"Or `{form}`." for form in other_forms)]) + "\n"
        yield from _items(option for option in _own(command) if option not in shared)
        if others := [option for option in _own(command) if option in shared]:
            yield f"- also {', '.join(f'`{option.names[-1]}`' for option in others)}"


def text() -> str:
    """The page."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_lines())).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(PAGE)
