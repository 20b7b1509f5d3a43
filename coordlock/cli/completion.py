"""What the shell completes: names of locks in use, and files for the command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from coordlock.model.claim import Mode

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["complete_command", "complete_mode", "complete_name"]

#: Seconds: a person at a shell does not wait for longer.
_PATIENCE: Final = 1.0


def complete_name(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The names in use that start with ``incomplete``; none where the service cannot tell."""
    from click.shell_completion import CompletionItem  # here and below: only to complete something

    from coordlock.client import connect
    from coordlock.config import configure

    try:
        url = context.params.get("url") or context.find_root().params.get("url")
        options = {"connect_timeout": _PATIENCE, "request_timeout": _PATIENCE}
        with connect(configure(url, options)) as client:
            names = client.queues()
    except Exception:
        return []  # an error's text would land in the line that is being typed
    fit = (name for name in names if name.startswith(incomplete) and name.isprintable())
    return [CompletionItem(name) for name in fit]


def complete_mode(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The modes that start with ``incomplete``, in any case."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(mode.name) for mode in Mode if mode.name.startswith(incomplete.upper())]


def complete_command(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]
