"""What the shell completes: commands, options, names of locks in use, and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from coordlock.errors import MissingExtra, Unsupported

if TYPE_CHECKING:
    import argparse

    from coordlock.cli.parser import Command, Option
    from coordlock.client import Client

__all__ = [
    "SHELLS",
    "complete",
    "complete_key",
    "complete_name",
    "complete_url",
    "is_asked",
    "script",
]

SHELLS: Final = ("bash", "zsh", "fish")
#: Seconds: a person at a shell does not wait for longer.
_PATIENCE: Final = 1.0


def asked(
    parsed_args: argparse.Namespace, question: Callable[[Client], Iterable[str]]
) -> list[str]:
    """The service's answer to ``question``, to be typed; nothing where it cannot tell."""
    from coordlock.backend.config import configure
    from coordlock.client import connect

    try:
        options = {"connect_timeout": _PATIENCE, "request_timeout": _PATIENCE}
        with connect(configure(getattr(parsed_args, "url", None), options)) as client:
            return [text for text in question(client) if text.isprintable()]
    except Exception:
        return []  # an error's text would land in the line that is being typed


def complete_name(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The names that start with ``prefix``, in use or of records."""

    def names(client: Client) -> Iterable[str]:
        yield from client.admin.names()
        with suppress(Unsupported):
            yield from (record.name for record in client.admin.records())

    found = dict.fromkeys(asked(parsed_args, names))
    return [name for name in found if name.startswith(prefix)]


def complete_key(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The keys that start with ``prefix``, in its folder."""
    folder = prefix.rpartition("/")[0] + "/"
    keys = asked(parsed_args, lambda client: list(client.values(folder).get()))
    return [key for key in keys if key.startswith(prefix)]


def complete_url(prefix: str, **_: Any) -> list[str]:
    """The beginnings of URLs that start with ``prefix``: those of services that commands share."""
    from coordlock.backend.registry import schemes

    urls = [f"{scheme}://" for scheme in schemes() if scheme != "memory"]
    return [url for url in urls if url.startswith(prefix)]


def is_asked() -> bool:
    """Whether a shell asks what to complete."""
    return "_ARGCOMPLETE" in os.environ


def _known(words: Sequence[str], prefix: str, **_: Any) -> list[str]:
    return [word for word in words if word.lower().startswith(prefix.lower())]


def complete(root: Command, below: Callable[[Command], Iterable[Command]]) -> None:
    """Tell the shell what to complete of ``root`` and what is ``below``; does not return."""
    import argparse

    import argcomplete

    nothing = argcomplete.completers.SuppressCompleter()  # files are offered for COMMAND alone

    def add(parser: argparse.ArgumentParser, option: Option, *names: str, **how: Any) -> None:
        action = parser.add_argument(*names, default=argparse.SUPPRESS, **how)
        action.completer = option.completer or partial(_known, option.known)  # type: ignore[attr-defined]

    def fill(parser: argparse.ArgumentParser, command: Command) -> None:
        for option in command.options:
            how = {} if option.metavar else {"action": "store_true"}
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
        raise MissingExtra("completion needs argcomplete", "cli") from None
    return shellcode(["coordlock"], shell=shell)
