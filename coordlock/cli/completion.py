"""Completion in shells: of commands, options, what their words may be, and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from coordlock.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse

    from coordlock.cli.parser import Command, Option

__all__ = [
    "SHELLS",
    "complete",
    "is_asked",
    "script",
]

SHELLS: Final = ("bash", "zsh", "fish")


def is_asked() -> bool:
    """Whether a shell asks what to complete."""
    return "_ARGCOMPLETE" in os.environ


def complete(root: Command, below: Callable[[Command], Iterable[Command]]) -> None:
    """Tell the shell what to complete of ``root`` and what is ``below``; does not return."""
    import argparse

    import argcomplete

    nothing = argcomplete.completers.SuppressCompleter()  # files are offered for COMMAND alone

    def add(parser: argparse.ArgumentParser, option: Option, *names: str, **how: Any) -> None:
        action = parser.add_argument(*names, default=argparse.SUPPRESS, **how)
        if option.completer is not None:
            action.completer = option.completer  # type: ignore[attr-defined]

    def fill(parser: argparse.ArgumentParser, command: Command) -> None:
        for option in command.options:
            how = {"choices": option.known or None} if option.metavar else {"action": "store_true"}
            add(parser, option, *option.names, dest=option.dest, **how)
        for argument in command.arguments:
            most = "*" if argument.repeats and not command.rest else "?"
            add(parser, argument, argument.dest, nargs=None if argument.least else most)
        if commands := list(below(command)):
            branches = parser.add_subparsers()
            for one in commands:
                fill(branches.add_parser(one.path.rpartition(" ")[2], add_help=False), one)
        elif command.rest:
            rest = parser.add_argument("command", nargs="*")
            rest.completer = argcomplete.completers.FilesCompleter()  # type: ignore[attr-defined]

    parser = argparse.ArgumentParser("coordlock", add_help=False)
    fill(parser, root)
    argcomplete.autocomplete(parser, always_complete_options=False, default_completer=nothing)


def script(shell: str) -> str:
    """What ``shell`` runs at its start, so that it asks."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise ConfigurationError.missing("completion needs argcomplete", "cli") from None
    return shellcode(["coordlock"], shell=shell)
