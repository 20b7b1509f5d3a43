"""The panels of the dashboard, where they stand, from the file that Grafana imports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from scripts.pictures.canvas import WIDTH, box, picture, text

SOURCE: Final = Path(__file__).parents[2] / "coordlock" / "telemetry" / "dashboard.json"
#: Grafana's grid has 24 columns.
COLUMN: Final = (WIDTH - 24) / 24
ROW: Final = 8  #: height of a row of the grid


def _panel(panel: dict[str, Any]) -> Iterator[str]:
    grid = panel["gridPos"]
    x, y = 12 + grid["x"] * COLUMN, 12 + grid["y"] * ROW
    wide = grid["w"] * COLUMN - 8
    yield box(x, y, wide, grid["h"] * ROW - 8, "card")
    title, _, more = panel["title"].partition(", ")
    yield text(x + wide / 2, y + 24, title, bold=True)
    yield text(x + wide / 2, y + 42, more, "muted", size=12)


def draw() -> str:
    panels = json.loads(SOURCE.read_text("utf-8"))["panels"]
    high = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    return picture(
        "The panels of the dashboard",
        24 + high * ROW,
        [shape for panel in panels for shape in _panel(panel)],
    )
