"""``coordlock`` itself: its version, and what shells need to complete commands."""

from __future__ import annotations

from coordlock.cli.command_table import COMMANDS, below
from coordlock.cli.completion import script
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit
from coordlock.cli.text import echo

__all__ = ["coordlock"]


def coordlock(*, version: bool, completion: str | None, service: Service) -> int:
    """Distributed locks for the shell.

      coordlock run nightly ./migrate.sh    hold a lock while a command runs
      coordlock ls                          which locks are in use
      coordlock doctor                      is everything in order

    The service comes from --url, before or after the command, from COORDLOCK_URL, coordlock.toml or
    pyproject.toml; without any of them the locks cover this machine.
    """
    if version:
        from importlib.metadata import version as version_of

        echo(f"coordlock {version_of('coordlock')}")
    elif completion is not None:
        echo(script(completion), end="")
    else:
        echo(COMMANDS[""].help(below(COMMANDS[""])), end="", err=True)
        return Exit.USAGE
    return Exit.OK
