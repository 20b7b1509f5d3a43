"""Tables: drawn on a terminal, plain columns elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from coordlock.cli.text import printable

__all__ = ["print_table"]


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], bold: int = 0) -> None:
    """Print ``rows`` under ``columns``; the column with the index ``bold`` stands out."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in (list(columns), *cells):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            click.echo(line.rstrip())
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, style="bold" if index == bold else None, overflow="fold")
    for row in cells:
        # As Text: a label may look like markup.
        table.add_row(*map(Text, row))
    Console().print(table)
