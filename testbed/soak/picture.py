"""Draws what happened in a soak: faults, grants, and what the fences refused, on one time line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from coordlock_faults.events import Reach
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.soak.report import Report
from testbed.soak.strip import Bar, Strip

__all__ = ["draw"]

_COLOURS: Final = {
    Reach.SERVERS: "#3b6fb6",
    Reach.NETWORK: "#5f9e6e",
    Reach.PAUSED: "#d08a2e",
    Reach.KILLED: "#7a5195",
    Reach.CLOCKS: "#888888",
    Reach.OPERATOR: "#b0413e",
    Reach.DATA: "#c77ca0",
}
_INK: Final = "#1f2933"
#: How many bars of grants fit in the picture.
_COLUMNS: Final = 300


def draw(report: Report, file: Path) -> None:
    """Draw the ``report`` of a soak into ``file``; its suffix chooses the format."""
    # Letters stay letters in an SVG, and its names don't differ from one drawing to the next.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "coordlock", "font.size": 9}):
        bars = [bar for strip in report.strips for bar in strip.faults]
        kinds = sorted({(bar.reach.value, bar.kind) for bar in bars}, reverse=True)
        figure = Figure(figsize=(11, 3.4 + 0.2 * len(kinds)), layout="constrained")
        heights = [0.2 * len(kinds) + 0.4, 1.6, 0.8]
        faults, grants, marks = figure.subplots(
            3, 1, sharex=True, gridspec_kw={"height_ratios": heights}
        )
        _draw_faults(faults, bars, [kind for _, kind in kinds])
        _draw_grants(grants, report.strips)
        _draw_marks(marks, report.strips)
        figure.suptitle(
            f"{report.backend}: {len(bars):,} faults, "
            f"{sum(one.grants for one in report.summaries):,} grants, "
            f"{len(report.failures)} runs that failed",
            x=0.01,
            horizontalalignment="left",
        )
        marks.set_xlabel("minutes")
        for axes in (faults, grants, marks):
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _draw_faults(axes: Axes, bars: Sequence[Bar], kinds: Sequence[str]) -> None:
    lanes = {kind: lane for lane, kind in enumerate(kinds)}
    shortest = max((bar.start + bar.length for bar in bars), default=0.0) / 1500
    for kind, lane in lanes.items():
        mine = [bar for bar in bars if bar.kind == kind]
        axes.broken_barh(
            [(bar.start / 60, max(bar.length, shortest) / 60) for bar in mine],
            (lane - 0.4, 0.8),
            color=_COLOURS[mine[0].reach],
        )
    axes.set_yticks(range(len(lanes)), lanes)
    for reach, colour in _COLOURS.items():
        if any(bar.reach is reach for bar in bars):
            axes.plot([], [], color=colour, linewidth=6, label=reach.value)
    if bars:
        axes.legend(ncols=7, loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)


def _draw_grants(axes: Axes, strips: Sequence[Strip]) -> None:
    end = max((strip.end for strip in strips), default=0.0)
    width = max(1, math.ceil(end / _COLUMNS))
    counts: Counter[int] = Counter()
    for strip in strips:
        for at, count in strip.grants.items():
            counts[int(at // width)] += count
    axes.bar(
        [(number + 0.5) * width / 60 for number in counts],
        [count / width for count in counts.values()],
        width=width / 60,
        color=_INK,
    )
    axes.set_ylabel("grants per second")


def _draw_marks(axes: Axes, strips: Sequence[Strip]) -> None:
    rows = {
        "violations": ([at for strip in strips for at in strip.violations], "#b0413e"),
        "overlaps, excused": ([at for strip in strips for at in strip.overlaps], "#d08a2e"),
        "refused by the fence": ([at for strip in strips for at in strip.refused], _INK),
    }
    for lane, (times, colour) in enumerate(rows.values()):
        axes.plot([at / 60 for at in times], [lane] * len(times), "|", color=colour, markersize=9)
    axes.set_yticks(
        range(len(rows)), [f"{name}: {len(times):,}" for name, (times, _) in rows.items()]
    )
    axes.set_ylim(-0.7, len(rows) - 0.3)
