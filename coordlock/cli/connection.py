"""Connecting, with a word to the person at the terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from coordlock.cli.text import can_redraw, echo, printable, terminal_width
from coordlock.client import Client, connect
from coordlock.settings import Settings

__all__ = ["connected"]

#: Seconds from one word to the next; the first comes after as many.
_INTERVAL: Final = 1.0


@contextmanager
def connected(settings: Settings) -> Iterator[Client]:
    """A client, closed at the end. A terminal on stderr shows when connecting takes a while."""
    with _progress(f"coordlock: connecting to {settings}"):
        client = connect(settings)
    with client:
        yield client


@contextmanager
def _progress(text: str) -> Iterator[None]:
    """Show ``text`` and the seconds so far, in one line that is gone at the end."""
    if not can_redraw(sys.stderr):
        yield
        return
    done = threading.Event()
    width = terminal_width(80, sys.stderr) - 1  # a line that wraps could not be erased

    def show() -> None:
        seconds = 0
        while not done.wait(_INTERVAL):
            seconds += 1
            after = f" ({seconds} s)"
            line = printable(text)[: max(0, width - len(after))] + after
            echo(f"\r{line}", err=True, end="")
        if seconds:
            echo("\r\x1b[K", err=True, end="")

    thread = threading.Thread(target=show, name="coordlock-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
