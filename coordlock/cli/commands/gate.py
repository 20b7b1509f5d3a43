"""``coordlock gate``: gates that hold clients back while they are shut."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from coordlock.cli.completion import complete_kept
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit
from coordlock.cli.options import json_option, name_argument, service_options, waiting_options
from coordlock.cli.parser import Group, Parser, UsageError
from coordlock.cli.text import echo
from coordlock.model.names import check_name

__all__ = ["parser"]

_COMMANDS: Final = {
    "shut": "Shut the gate NAME: clients that come to it wait.",
    "open": "Open the gate NAME: all that wait go on.",
    "show": "Print whether the gate NAME is open or shut.",
    "wait": "Wait until the gate NAME is open.",
}


def parser() -> Group:
    """The parser of the group."""
    group = Group(
        "coordlock gate",
        _gate,
        usage="COMMAND [ARGS]...",
        commands=_COMMANDS,
        load=_load,
        example="coordlock gate shut maintenance",
    )
    service_options(group)
    return group.finished()


def _gate(*, service: Service) -> int:
    """Shut and open gates, and wait at them.

    A gate is open at first. Once shut, it stays shut until any client opens it.
    """
    echo(parser().format_help(), end="", err=True)
    return Exit.USAGE


def _load(name: str) -> Parser:
    actions: dict[str, Callable[..., None]] = {
        "shut": _shut,
        "open": _open,
        "show": _show,
        "wait": _wait,
    }
    usage, example = "[OPTIONS] NAME", f"coordlock gate {name} maintenance"
    parser = Parser(f"coordlock gate {name}", actions[name], usage=usage, example=example)
    name_argument(parser, complete_kept("gate"))
    if name == "wait":
        waiting_options(parser, "the gate is shut")
    else:
        service_options(parser)
    if name == "show":
        json_option(parser)
    return parser.finished()


def _shut(*, name: str, service: Service) -> None:
    """Shut the gate NAME: clients that come to it wait.

    It stays shut after this command and its machine are gone. Clients that passed before are not
    stopped.
    """
    check_name(name)
    with service.connected() as client:
        was_open = client.gate(name).shut()
    echo(f"{'shut' if was_open else 'shut already'}: {name}")


def _open(*, name: str, service: Service) -> None:
    """Open the gate NAME: all that wait go on.

    Does nothing if it is open.
    """
    check_name(name)
    with service.connected() as client:
        was_shut = client.gate(name).open()
    echo(f"{'opened' if was_shut else 'open already'}: {name}")


def _show(*, name: str, service: Service, as_json: bool) -> None:
    """Print whether the gate NAME is open or shut.

    A gate that nobody has ever shut is open.
    """
    check_name(name)
    with service.connected() as client:
        is_open = client.gate(name).is_open()
    word = "open" if is_open else "shut"
    echo(json.dumps({"name": name, "open": is_open}) if as_json else word)


def _wait(*, name: str, nonblock: bool, timeout: float | None, service: Service) -> None:
    """Wait until the gate NAME is open.

    The exit status is 75 if it is still shut after --timeout, or at once with -n.
    """
    check_name(name)
    if nonblock and timeout is not None:
        raise UsageError("--nonblock and --timeout exclude each other")
    with service.connected() as client:
        client.gate(name).wait(0 if nonblock else timeout)
