"""``coordlock latch``: latches that open once they were counted down."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from coordlock.cli.completion import complete_kept
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit
from coordlock.cli.options import json_option, name_argument, service_options, waiting_options
from coordlock.cli.parser import Group, Parser, UsageError, whole
from coordlock.cli.text import echo
from coordlock.model.names import check_name

__all__ = ["parser"]

_COMMANDS: Final = {
    "down": "Count the latch NAME of COUNT down by one.",
    "show": "Print how often the latch NAME of COUNT is still to be counted down.",
    "wait": "Wait until the latch NAME was counted down COUNT times.",
}


def parser() -> Group:
    """The parser of the group."""
    group = Group(
        "coordlock latch",
        _latch,
        usage="COMMAND [ARGS]...",
        commands=_COMMANDS,
        load=_load,
        example="coordlock latch wait imports 3 --timeout 10m",
    )
    service_options(group)
    return group.finished()


def _latch(*, service: Service) -> int:
    """Count latches down, and wait until they are open.

    All clients must give a latch the same COUNT. Counted down COUNT times, it opens for good.
    """
    echo(parser().format_help(), end="", err=True)
    return Exit.USAGE


def _load(name: str) -> Parser:
    actions: dict[str, Callable[..., None]] = {"down": _down, "show": _show, "wait": _wait}
    usage, example = "[OPTIONS] NAME COUNT", f"coordlock latch {name} imports 3"
    parser = Parser(f"coordlock latch {name}", actions[name], usage=usage, example=example)
    name_argument(parser, complete_kept("latch"))
    parser.argument("count", metavar="COUNT", type=whole(1, 2**31 - 1))
    if name == "wait":
        waiting_options(parser, "the latch is closed")
    else:
        service_options(parser)
        json_option(parser)
    return parser.finished()


def _down(*, name: str, count: int, service: Service, as_json: bool) -> None:
    """Count the latch NAME of COUNT down by one.

    Prints how often it must still be counted down: 0 once it is open. coordlock counts it down
    exactly once, even when an answer is lost.
    """
    check_name(name)
    with service.connected() as client:
        left = client.latch(name, count).count_down()
    _print(name, count, left, as_json=as_json)


def _show(*, name: str, count: int, service: Service, as_json: bool) -> None:
    """Print how often the latch NAME of COUNT is still to be counted down.

    Prints 0 once it is open.
    """
    check_name(name)
    with service.connected() as client:
        left = client.latch(name, count).remaining()
    _print(name, count, left, as_json=as_json)


def _print(name: str, count: int, left: int, *, as_json: bool) -> None:
    document = {"name": name, "count": count, "remaining": left}
    echo(json.dumps(document) if as_json else left)


def _wait(
    *, name: str, count: int, nonblock: bool, timeout: float | None, service: Service
) -> None:
    """Wait until the latch NAME was counted down COUNT times.

    The exit status is 75 if it is still closed after --timeout, or at once with -n.
    """
    check_name(name)
    if nonblock and timeout is not None:
        raise UsageError("--nonblock and --timeout exclude each other")
    with service.connected() as client:
        client.latch(name, count).wait(0 if nonblock else timeout)
