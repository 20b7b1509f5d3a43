"""Tables: columns where they fit, lines on a terminal that is too narrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordlock.cli.text import dashed, echo, emphasised, folded, printable, terminal_width

__all__ = ["print_table"]


def print_table(rows: Sequence[Mapping[str, object]], *, optional: str = "") -> None:
    """Print ``rows``, which have the same columns; without ``optional`` where that is empty.

    Cells are never broken: half a token would pass for another one. So on a terminal that is too
    narrow, each row gets a line for each column.
    """
    columns = [one for one in rows[0] if one != optional or any(row[one] for row in rows)]
    cells = [[printable(str(dashed(row[one]))) for one in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(widths) + 2 * len(widths) - 2 <= terminal_width():
        for number, row in enumerate([columns, *cells]):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            echo(line.rstrip() if number else emphasised(line.rstrip()))
        return
    margin = max(map(len, columns)) + 2
    for row in cells:
        echo()
        for column, cell in zip(columns, row, strict=True):
            lines = folded(cell, terminal_width(), taken=margin, indent=margin, breaks_words=False)
            for line in lines:
                echo(f"{column:<{margin}}{line}")
                column = ""
