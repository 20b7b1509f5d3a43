"""Asking a person before something is done that nobody can undo."""

from __future__ import annotations

import sys

from coordlock.cli.parser import Aborted, UsageError
from coordlock.cli.signals import Interrupted
from coordlock.cli.text import echo

__all__ = ["confirm"]


def confirm(question: str, *facts: str, yes: bool) -> None:
    """Show ``facts`` and ask ``question``, unless ``yes`` was said before.

    Raises `Aborted` for a no, and `UsageError` where nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("stdin is no terminal, so nobody can be asked: add --yes")
    for fact in facts:
        echo(fact, err=True)
    try:
        echo(f"{question} [y/N]: ", end="", err=True)
        answer = sys.stdin.readline()
    except Interrupted:
        echo(err=True)  # what comes next is no answer
        raise
    if not answer:
        echo(err=True)
    if answer.strip().lower() not in ("y", "yes"):
        raise Aborted
