"""Pictures of tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.ticker import ScalarFormatter

from bench.figures import Spread
from bench.table import Plot, Table

__all__ = ["draw"]

mpl.use("svg")
# Text stays text, and the same figures make the same file.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "coordlock"})

#: Bars that differ by more are drawn to a logarithmic scale.
_WIDE = 50.0


def draw(tables: Sequence[Table], stem: Path) -> None:
    """One SVG beside ``stem``, with a panel for each table that says how it is drawn."""
    drawn = [(table, plot) for table in tables if (plot := table.plot) and _shows(table, plot)]
    if not drawn:
        return
    heights = [2.6 if plot.over else max(2.6, 0.25 * len(table.rows)) for table, plot in drawn]
    figure, panels = plt.subplots(
        *(len(drawn), 1),
        figsize=(7, sum(heights)),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for (table, plot), panel in zip(drawn, panels[:, 0], strict=True):
        (_lines if plot.over else _bars)(table, plot, panel)
        panel.set_title(table.title, fontsize=9)
        panel.tick_params(labelsize=8)
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


def _shows(table: Table, plot: Plot) -> bool:
    return any(row[plot.value] is not None for row in table.rows)


def _bars(table: Table, plot: Plot, panel: Any) -> None:
    rows = [row for row in table.rows if row[plot.value] is not None]
    values = [_value(row[plot.value]) for row in rows]
    bars = panel.barh([str(row[plot.label]) for row in rows], values, color="#4878a8")
    panel.bar_label(bars, [f"{value:.3g}" for value in values], fontsize=8, padding=2)
    panel.invert_yaxis()
    panel.set_xlabel(plot.value, fontsize=8)
    panel.margins(x=0.12)
    if plot.log and max(values) > _WIDE * min(values):
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(ScalarFormatter())
    if plot.target is not None:
        panel.axvline(plot.target, color="#b04a4a", linestyle="--", linewidth=1)


def _lines(table: Table, plot: Plot, panel: Any) -> None:
    lines: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in table.rows:
        if row[plot.value] is not None:
            point = (row[str(plot.over)], _value(row[plot.value]))
            lines[str(row[plot.label])].append(point)
    for name, points in lines.items():
        panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(ScalarFormatter())
    if plot.log:
        panel.set_yscale("log")
        for set_formatter in (panel.yaxis.set_major_formatter, panel.yaxis.set_minor_formatter):
            set_formatter(ScalarFormatter())
    if plot.target is not None:
        panel.axhline(plot.target, color="#b04a4a", linestyle="--", linewidth=1)
    panel.set_xlabel(str(plot.over), fontsize=8)
    panel.set_ylabel(plot.value, fontsize=8)
    panel.legend(fontsize=8)


def _value(cell: Any) -> float:
    return cell.median if isinstance(cell, Spread) else float(cell)
