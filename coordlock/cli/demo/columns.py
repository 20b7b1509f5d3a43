"""Several runs of one story as they go on, side by side: a column each, in the terminal's width."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import ClassVar, Final

import click

from coordlock.cli.demo.crew import Event
from coordlock.cli.demo.timeline import Timeline, colour_of, emphasised, sentence
from coordlock.cli.text import coloured, printable

__all__ = ["Columns"]

#: The width where there is no terminal and no COLUMNS.
_ELSEWHERE: Final = 100
#: Below this width columns would be too narrow to read: each line then names its run.
_NARROW: Final = 72
#: Wider columns are hard to read, too.
_WIDEST: Final = 72
_TIME: Final = " " * len("   0.000 s  ")
_BETWEEN: Final = " | "

#: What a run has in a row: a text, and what makes the text's line of that number coloured.
_Cell = tuple[str, Callable[[str, int], str]]


class Columns(Timeline):
    """A timeline with a column for each of ``runs``. Every row is one event, at its time."""

    silent: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, start: float, runs: list[str], *, as_json: bool) -> None:
        super().__init__(start, as_json=as_json)
        self._runs = runs
        self._shown: list[Event] = []

    def say(self, text: str = "", colour: str = "white") -> None:
        """A paragraph over all columns; not for programs."""
        if not self.as_json:
            for line in textwrap.wrap(printable(text), _width()) or [""]:
                click.echo(coloured(line, colour, bold=colour != "white"))

    def tell(self, texts: Mapping[str, str], colours: Mapping[str, str]) -> None:
        """A row that is no event: a text for each of some runs, in its colour; for people too."""
        if not self.as_json:
            self._row(_TIME, {run: _plain(text, colours[run]) for run, text in texts.items()})

    def show(self, event: Event) -> None:
        """Have ``event`` printed by the next `flush`.

        While one run's event is dealt with, others happen; they are printed in their order.
        """
        self._shown.append(event)

    def flush(self) -> None:
        """Print what was shown, in the order of time."""
        events, self._shown = sorted(self._shown, key=lambda one: one["at"]), []
        for event in events:
            super().show(event)

    def _print(self, event: Event, at: str) -> None:
        worker = event["worker"]
        name = len(worker)

        def paint(line: str, number: int) -> str:
            if number:
                return emphasised(event, line)
            return coloured(line[:name], colour_of(worker)) + emphasised(event, line[name:])

        self._row(at, {event["run"]: (printable(f"{worker}  {sentence(event)}"), paint)})

    def _row(self, at: str, cells: Mapping[str, _Cell]) -> None:
        width = _width()
        if width < _NARROW:
            self._stack(at, cells, width)
            return
        left = width - len(_TIME) - len(_BETWEEN) * (len(self._runs) - 1)
        each = min(left // len(self._runs), _WIDEST)
        columns = [
            [f"{paint(line, number)}{' ' * (each - len(line))}" for number, line in lines]
            for text, paint in (cells.get(run, _NOTHING) for run in self._runs)
            for lines in [enumerate(_wrapped(text, each))]
        ]
        for number, row in enumerate(zip_longest(*columns, fillvalue=" " * each)):
            click.echo(f"{_TIME if number else at}{_BETWEEN.join(row)}".rstrip())

    def _stack(self, at: str, cells: Mapping[str, _Cell], width: int) -> None:
        name = max(map(len, self._runs)) + 2
        for run, (text, paint) in cells.items():
            for number, line in enumerate(_wrapped(text, width - len(at) - name)):
                head = " " * (len(at) + name) if number else f"{at}{run:<{name}}"
                click.echo(head + paint(line, number))


def _plain(text: str, colour: str) -> _Cell:
    return printable(text), lambda line, _: coloured(line, colour, bold=True)


_NOTHING: Final[_Cell] = ("", lambda line, _: line)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), subsequent_indent="   ")


def _width() -> int:
    return shutil.get_terminal_size((_ELSEWHERE, 24)).columns
