"""What the shell completes: commands, options, names of locks in use, and files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from coordlock.errors import MissingExtra
from coordlock.model.claim import Mode

if TYPE_CHECKING:
    from coordlock.cli.parser import Group, Parser
    from coordlock.client import Client

__all__ = [
    "SHELLS",
    "Completer",
    "asked",
    "complete",
    "complete_election",
    "complete_group",
    "complete_kept",
    "complete_mode",
    "complete_name",
    "complete_url",
    "complete_work_queue",
    "completed_by",
    "is_asked",
    "one_word_of",
    "script",
]

SHELLS: Final = ("bash", "zsh", "fish")
#: Seconds: a person at a shell does not wait for longer.
_PATIENCE: Final = 1.0

#: What the shell offers for the word that begins with ``prefix``.
Completer = Callable[..., Iterable[str]]


def completed_by(argument: argparse.Action, completer: Completer) -> None:
    """Have the values of ``argument`` completed by ``completer``."""
    argument.completer = completer  # type: ignore[attr-defined] # where argcomplete looks for it


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
    """The names in use that start with ``prefix``."""
    names = asked(parsed_args, lambda client: client.admin.names())
    return [name for name in names if name.startswith(prefix)]


def complete_election(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The elections whose names start with ``prefix``; see `_of_kind`."""
    return _of_kind("election", prefix, parsed_args)


def complete_group(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The groups whose names start with ``prefix``; see `_of_kind`."""
    return _of_kind("group", prefix, parsed_args)


def _of_kind(kind: str, prefix: str, parsed_args: argparse.Namespace) -> list[str]:
    """The names in use that start with ``prefix``, but for those of another kind.

    Names whose kind nobody can tell are offered: on ZooKeeper, elections look like locks of kazoo.
    """
    from coordlock.cli.queues import kind_of

    return asked(
        parsed_args,
        lambda client: [
            name
            for name in client.admin.names()
            if name.startswith(prefix)
            and kind_of(client.admin.contenders(name), client.settings.scheme) in (kind, None)
        ],
    )


def complete_kept(*kinds: str) -> Completer:
    """Offers the names under which something of one of ``kinds`` is kept; of all without any."""

    def offered(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        def names(client: Client) -> list[str]:
            found = (one.name for one in client.admin.records() if not kinds or one.kind in kinds)
            return [name for name in dict.fromkeys(found) if name.startswith(prefix)]

        return asked(parsed_args, names)

    return offered


def complete_url(prefix: str, **_: Any) -> list[str]:
    """The beginnings of URLs that start with ``prefix``: those of services that commands share."""
    from coordlock.backend.registry import schemes

    urls = [f"{scheme}://" for scheme in schemes() if scheme != "memory"]
    return [url for url in urls if url.startswith(prefix)]


def one_word_of(words: Iterable[str]) -> Completer:
    """Offers those of ``words`` that start with what is there."""
    return lambda prefix, **_: [word for word in words if word.startswith(prefix)]


#: Offers the work queues.
complete_work_queue: Final = complete_kept("work queue")


def complete_mode(prefix: str, **_: Any) -> list[str]:
    """The modes that start with ``prefix``, in any case."""
    return [mode.name for mode in Mode if mode.name.startswith(prefix.upper())]


def is_asked() -> bool:
    """Whether a shell asks what to complete."""
    return "_ARGCOMPLETE" in os.environ


def complete(group: Group) -> None:
    """Tell the shell what to complete; does not return."""
    import argcomplete

    # Files are offered for COMMAND alone.
    argcomplete.autocomplete(
        _tree(group),
        always_complete_options=False,
        default_completer=argcomplete.completers.SuppressCompleter(),
    )


def script(shell: str) -> str:
    """What ``shell`` runs at its start, so that it asks."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise MissingExtra("completion needs argcomplete", "cli") from None
    return shellcode(["coordlock"], shell=shell)


def _tree(group: Group) -> argparse.ArgumentParser:
    """``group`` with all that is below it, as argparse has it: one parser for the whole line."""
    import argcomplete.completers

    from coordlock.cli.parser import Group

    tree = argparse.ArgumentParser(group.prog, parents=[_quiet(group)], add_help=False)
    commands = tree.add_subparsers()
    for name in group.commands:
        parser = group.load(name)
        parent = _tree(parser) if isinstance(parser, Group) else _quiet(parser)
        branch = commands.add_parser(name, parents=[parent], add_help=False)
        if parser.has_rest:
            rest = branch.add_argument("rest", nargs="*")
            completed_by(rest, argcomplete.completers.FilesCompleter())
    return tree


def _quiet(parser: Parser) -> Parser:
    """``parser``, whose defaults do not take the place of what stands before the command."""
    for option in parser.options():
        option.default = argparse.SUPPRESS
    return parser
