"""What a measurement found: rows for people, and the same in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.figures import Spread

__all__ = ["Cell", "Table"]

Cell = str | float | int | Spread | None


@dataclass
class Table:
    """A table: rows of cells by column, and raw samples that only JSON keeps."""

    title: str
    columns: Sequence[str]
    notes: list[str] = field(default_factory=list)
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


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.0f}" if cell >= 100 else f"{cell:.3g}"
    return str(cell)
