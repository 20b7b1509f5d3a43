"""Several runs of one story as they go on, side by side: a column each, in the terminal's width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import ClassVar, Final

from coordlock.cli.demo.crew import Event
from coordlock.cli.demo.timeline import HANGING, TIME, Paint, Timeline, hang, in_words
from coordlock.cli.text import coloured, echo, folded, printable, terminal_width

__all__ = ["Columns"]

#: The width where there is no terminal.
_ELSEWHERE: Final = 100
#: Below this width columns would be too narrow to read: each text then names its run.
_NARROW: Final = 72
#: Wider columns are hard to read, too.
_WIDEST: Final = 72
_BETWEEN: Final = " | "


class Columns(Timeline):
    """A timeline with a column for each of ``runs``. Every row is one event, at its time."""

    silent: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, start: float, runs: list[str], *, as_json: bool) -> None:
        super().__init__(start, as_json=as_json)
        self._runs = runs
        self._shown: list[Event] = []

    @property
    def width(self) -> int:
        """In how many columns to print, elsewhere too: side by side needs one."""
        return terminal_width(_ELSEWHERE)

    def head(self, titles: Mapping[str, str]) -> None:
        """The columns' titles, for people; a narrow terminal has no columns."""
        if self.width >= _NARROW:
            self.tell(
                {run: [title] for run, title in titles.items()}, dict.fromkeys(titles, "white")
            )

    def tell(self, texts: Mapping[str, Sequence[str]], colours: Mapping[str, str]) -> None:
        """Paragraphs that are no events, some for each run, in its colour; for people too."""
        if self.as_json:
            return
        cells = {
            run: [(printable(text), _plain(colours[run])) for text in paragraphs]
            for run, paragraphs in texts.items()
        }
        if self.width < _NARROW:
            for run, column in cells.items():
                head = self._named(run)
                for text, paint in column:
                    hang(head, text, paint, self.width, len(head))
                    head = " " * len(head)
            return
        for row in zip_longest(*cells.values()):
            shown = {run: cell for run, cell in zip(cells, row, strict=True) if cell is not None}
            self._row(" " * TIME, shown)

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
        text, paint = in_words(event)
        if self.width < _NARROW:
            hang(at + self._named(event["run"]), text, paint, self.width, TIME)
        else:
            self._row(at, {event["run"]: (text, paint)})

    def _row(self, at: str, cells: Mapping[str, tuple[str, Paint]]) -> None:
        left = self.width - TIME - len(_BETWEEN) * (len(self._runs) - 1)
        each = min(left // len(self._runs), _WIDEST)
        columns = [_column(*cells[run], each) if run in cells else [] for run in self._runs]
        for number, row in enumerate(zip_longest(*columns, fillvalue=" " * each)):
            echo(f"{' ' * TIME if number else at}{_BETWEEN.join(row)}".rstrip())

    def _named(self, run: str) -> str:
        return run.ljust(max(map(len, self._runs)) + 2)


def _column(text: str, paint: Paint, width: int) -> list[str]:
    """The text as lines that are exactly ``width`` wide."""
    lines = []
    for number, line in enumerate(folded(text, width, indent=HANGING)):
        head = " " * HANGING if number else ""
        rest = " " * (width - len(head) - len(line))
        lines.append(head + paint(line, number) + rest)
    return lines


def _plain(colour: str) -> Paint:
    return lambda line, _: coloured(line, colour, bold=True)
