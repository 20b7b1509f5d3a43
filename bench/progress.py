"""What is being measured, on stderr, for who waits for it.

What measures only leaves a note: `doing`. A thread shows the last one now and then, so that nobody
who is timed waits for a terminal.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self, TextIO

__all__ = ["Progress", "doing"]

#: Seconds from one line to the next: where it is rewritten, and where each stays.
_ON_TERMINAL: Final = 1.0
_ELSEWHERE: Final = 10.0
_ERASE: Final = "\r\x1b[K"

_note = ""


def doing(what: str, number: int = 0, of: int = 0) -> None:
    """Leave a note of what is measured from now on: the round ``number`` ``of`` so many, if any.

    Round 0 warms up.
    """
    global _note
    turn = f", round {number} of {of}" if number else ", warming up" if of else ""
    _note = what + turn


class Progress:
    """Shows the notes on ``stream``, or stderr, while its block runs; not at all if ``quiet``."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._rewrites = self._stream.isatty()
        self._quiet = quiet
        self._started = time.monotonic()
        self._section, self._left, self._since = "", 0.0, 0.0
        self._shown = ""
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show_all, name="progress", daemon=True)

    def section(self, name: str, number: int, of: int, left: float) -> None:
        """What is measured from now on belongs to section ``number`` ``of`` so many.

        All of them take about ``left`` seconds from here.
        """
        self._section = f"{name} ({number}/{of})"
        self._left, self._since = left, time.monotonic()
        doing("starting")

    @property
    def elapsed(self) -> str:
        """Minutes and seconds since the start."""
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"{minutes}:{seconds:02}"

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within the block the line is off the terminal, so that others may write to it."""
        with self._writing:
            self._erase()
            yield

    def say(self, line: str) -> None:
        """A line that stays, shown even if quiet."""
        with self.aside():
            print(line, file=self._stream, flush=True)

    def _show_all(self) -> None:
        while not self._ended.wait(_ON_TERMINAL if self._rewrites else _ELSEWHERE):
            with self._writing:
                left = self._left - (time.monotonic() - self._since)
                minutes = max(1, round(left / 60))
                self._show(f"{self.elapsed}, {minutes} min left, {self._section}: {_note}")

    def _show(self, line: str) -> None:
        if self._rewrites:
            # A line that wraps could not be rewritten.
            self._shown = line[: _width(self._stream) - 1]
            self._stream.write(_ERASE + self._shown)
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def _erase(self) -> None:
        if self._shown:
            self._shown = ""
            self._stream.write(_ERASE)
            self._stream.flush()

    def __enter__(self) -> Self:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if not self._quiet:
            self._thread.join()
        with self._writing:
            self._erase()


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80
