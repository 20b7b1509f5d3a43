"""Tables: drawn on a terminal where they fit, plain columns elsewhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from coordlock.cli.text import echo, folded, printable
from coordlock.errors import MissingExtra

__all__ = ["print_table"]

#: Data may be broken anywhere, but not to fewer columns than these.
_LEAST: Final = 12
#: Columns between two columns of a table.
_GAP: Final = 3
#: A word, with what may end a line: names are broken after these, and never in a word.
_PIECE: Final = re.compile(r"[^\s/_.:@,=-]*[\s/_.:@,=-]*")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    texts: Collection[str] = (),
    data: Collection[str] = (),
    bold: int = 0,
) -> None:
    """Print ``rows`` under ``columns``; the column with the index ``bold`` stands out.

    On a terminal the columns ``texts`` may be broken between words, and ``data`` anywhere, but no
    others: half a token would pass for another one. Where the terminal is too narrow for that, each
    row gets a line for each column.
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
        raise MissingExtra("tables on a terminal need rich, --json does not", "cli") from None

    console = Console()
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    least = []
    for column, width, below in zip(columns, widths, zip(*cells, strict=True), strict=True):
        if column in texts or column in data:
            words = [piece for text in (column, *below) for piece in _PIECE.findall(text)]
            width = max(cell_len(word.rstrip()) for word in words)
        least.append(min(width, _LEAST) if column in data else width)
    if not _fit(widths, least, console.width):
        _print_records(columns, cells, console.width)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, style="bold" if index == bold else None, no_wrap=True)
    for row in cells:
        broken = (
            "\n".join(_broken(cell, width, cell_len))
            for cell, width in zip(row, widths, strict=True)
        )
        # As Text: a label may look like markup.
        table.add_row(*map(Text, broken))
    console.print(table)


def _fit(widths: list[int], least: Sequence[int], width: int) -> bool:
    """Take from the widest columns until all fit into ``width``; whether they do."""
    excess = sum(widths) + _GAP * len(widths) - 1 - width
    while excess > 0:
        can = [index for index, least in enumerate(least) if widths[index] > least]
        if not can:
            return False
        widths[max(can, key=lambda index: widths[index])] -= 1
        excess -= 1
    return True


def _broken(text: str, width: int, cell_len: Callable[[str], int]) -> Iterator[str]:
    """``text`` in lines of ``width`` columns, broken between words where that is possible."""
    line = ""
    for piece in _PIECE.findall(text):
        if cell_len((line + piece).rstrip()) <= width:
            line += piece
            continue
        if line:
            yield line.rstrip()
        while cell_len(piece.rstrip()) > width:
            yield piece[:width]
            piece = piece[width:]
        line = piece
    yield line.rstrip()


def _print_records(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> None:
    margin = max(map(len, columns)) + 2
    for row in rows:
        echo()
        for column, cell in zip(columns, row, strict=True):
            for line in folded(cell, width, taken=margin, indent=margin, breaks_words=False):
                echo(f"{column:<{margin}}{line}")
                column = ""
