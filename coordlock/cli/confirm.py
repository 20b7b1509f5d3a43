"""Asking a person before something is done that nobody can undo."""

from __future__ import annotations

import sys
from typing import Final

from coordlock.cli.parser import Aborted, UsageError
from coordlock.cli.signals import Interrupted
from coordlock.cli.text import echo

__all__ = ["confirm"]

#: What a person may answer.
_ANSWERS: Final = {"y": True, "yes": True, "n": False, "no": False, "": False}


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
    is_sure: bool | None = None
    try:
        while is_sure is None:
            echo(f"{question} [y/N]: ", end="", err=True)
            if not (answer := sys.stdin.readline()):
                raise Aborted
            is_sure = _ANSWERS.get(answer.strip().lower())
    except (Aborted, Interrupted):
        echo(err=True)  # what comes next is no answer
        raise
    if not is_sure:
        raise Aborted
