"""What a measurement found: rows for people, the same in JSON, and what a plot shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.figures import Spread

__all__ = ["Cell", "Plot", "Table"]

Cell = str | float | int | Spread | None


@dataclass(frozen=True)
class Plot:
    """Which columns a picture shows: bars of ``value`` by ``label``, or lines over ``over``.

    With ``over``, ``label`` tells the lines apart.
    """

    value: str
    label: str
    over: str | None = None
    log: bool = False
    target: float | None = None


@dataclass
class Table:
    """A table: rows of cells by column, and raw samples that only JSON keeps."""

    title: str
    columns: Sequence[str]
    notes: list[str] = field(default_factory=list)
    plot: Plot | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        """One more row."""
        self.rows.append(dict(zip(self.columns, cells, strict=True)))

    def text(self) -> str:
        """The table in columns, and the notes below."""
        lines = [list(self.columns), *([_text(one) for one in row.values()] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        body = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        body.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([self.title, "", *body, *(f"! {note}" for note in self.notes), ""])

    def markdown(self) -> str:
        """The table as documentation has it, with its title and notes."""
        lines = [self.columns, ["---"] * len(self.columns)]
        lines += [[_text(one) for one in row.values()] for row in self.rows]
        body = [f"| {' | '.join(line)} |" for line in lines]
        return "\n".join(
            [f"**{self.title}**", "", *body, "", *(f"- {one}" for one in self.notes), ""]
        )


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.0f}" if cell >= 100 else f"{cell:.3g}"
    return str(cell)
