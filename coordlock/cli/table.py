"""Tables: drawn on a terminal where they fit, plain columns elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Final

from coordlock.cli.text import echo, folded, printable
from coordlock.errors import MissingExtra

__all__ = ["print_table"]

#: Free text is broken into lines, but not to fewer columns than these.
_LEAST: Final = 12


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    texts: Collection[str],
    bold: int = 0,
) -> None:
    """Print ``rows`` under ``columns``; the column with the index ``bold`` stands out.

    On a terminal the columns ``texts`` may be broken into lines, and no others: half a token would
    pass for another one. Where it is too narrow for that, each row gets a line for each column.
    """
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in (list(columns), *cells):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            echo(line.rstrip())
        return
    try:
        from rich.box import SIMPLE_HEAD
        from rich.cells import cell_len
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        raise MissingExtra("a table on a terminal needs rich, and --json nothing", "cli") from None

    console = Console()
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    least = [
        min(width, _LEAST) if column in texts else width
        for column, width in zip(columns, widths, strict=True)
    ]
    if sum(least) + 3 * len(columns) - 1 > console.width:
        _print_records(columns, cells, console.width)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        style = "bold" if index == bold else None
        table.add_column(column, style=style, overflow="fold", no_wrap=column not in texts)
    for row in cells:
        # As Text: a label may look like markup.
        table.add_row(*map(Text, row))
    console.print(table)


def _print_records(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> None:
    margin = max(map(len, columns)) + 2
    for row in rows:
        echo()
        for column, cell in zip(columns, row, strict=True):
            for line in folded(cell, width, taken=margin, indent=margin):
                echo(f"{column:<{margin}}{line}")
                column = ""
