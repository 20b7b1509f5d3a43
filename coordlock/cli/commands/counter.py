"""``coordlock counter``: numbers that many clients add to."""

from __future__ import annotations

import argparse
import json
from typing import Final

from coordlock.cli.completion import complete_kept
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit
from coordlock.cli.options import follow_option, json_option, name_argument, service_options
from coordlock.cli.parser import Group, Parser
from coordlock.cli.text import echo
from coordlock.model.names import check_name

__all__ = ["parser"]

_COMMANDS: Final = {
    "add": "Add N to the counter NAME, and print the number after that.",
    "get": "Print the number of the counter NAME.",
}


def parser() -> Group:
    """The parser of the group."""
    group = Group(
        "coordlock counter",
        _counter,
        usage="COMMAND [ARGS]...",
        commands=_COMMANDS,
        load=lambda name: _add_parser() if name == "add" else _get_parser(),
        example="coordlock counter add invoices",
    )
    service_options(group)
    return group.finished()


def _counter(*, service: Service) -> int:
    """Add to counters, and read them.

    A counter is 0 at first, and is kept when all clients have left.
    """
    echo(parser().format_help(), end="", err=True)
    return Exit.USAGE


def _add_parser() -> Parser:
    parser = Parser(
        "coordlock counter add",
        _add,
        usage="[OPTIONS] NAME [N]",
        example="coordlock counter add invoices",
    )
    name_argument(parser, complete_kept("counter"))
    parser.argument("number", metavar="N", nargs="?", type=_number, default=1)
    service_options(parser)
    json_option(parser)
    return parser.finished()


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _add(*, name: str, number: int, service: Service, as_json: bool) -> None:
    """Add N to the counter NAME, and print the number after that.

    N is 1 by default. Write a negative N behind two dashes: counter add NAME -- -5. coordlock adds
    N exactly once, even when an answer is lost. If the service does not answer, the status is 69,
    and the message says whether N may have been added.
    """
    check_name(name)
    with service.connected() as client:
        after = client.counter(name).add(number)
    echo(json.dumps({"name": name, "number": after}) if as_json else after)


def _get_parser() -> Parser:
    parser = Parser(
        "coordlock counter get",
        _get,
        usage="[OPTIONS] NAME",
        example="coordlock counter get invoices --follow",
    )
    name_argument(parser, complete_kept("counter"))
    follow_option(parser, "Print each new number, too, until Ctrl-C.")
    service_options(parser)
    json_option(parser)
    return parser.finished()


def _get(*, name: str, follow: bool, service: Service, as_json: bool) -> None:
    """Print the number of the counter NAME.

    The number is 0 if nobody has added to it. With --follow, the command may leave out a number
    that lasted for a moment.
    """
    check_name(name)

    def show(number: int) -> None:
        echo(json.dumps({"name": name, "number": number}) if as_json else number)

    with service.connected() as client:
        counter = client.counter(name)
        if follow:
            with counter.observe() as numbers:
                for number in numbers:
                    show(number)
        show(counter.get())
