"""A holder loses its lock, writes late, and is refused: without a fence and with one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.pictures.canvas import picture
from scripts.pictures.timelines import LANE, Timeline

LANES: Final = ("A", "lock", "B", "resource")
_PANEL: Final = len(LANES) * LANE + 62


def _story(top: float, title: str) -> tuple[Timeline, Iterator[str]]:
    lanes = Timeline(top, LANES)

    def parts() -> Iterator[str]:
        yield from lanes.ground(title)
        yield from lanes.bar("A", 0.3, 1.9, "a", "reads 100")
        yield from lanes.bar("A", 1.9, 7.4, "pause", "paused: GC, SIGSTOP, a migrating VM …")
        yield from lanes.bar("A", 7.4, 9.9, "a", "goes on, pays 30")
        yield from lanes.bar("lock", 0.3, 3.9, "a", "held by A, token 33")
        yield from lanes.bar("lock", 4.0, 9.9, "b", "A's lease ran out; held by B, token 34")
        yield from lanes.bar("B", 4.0, 7.1, "b", "reads 100, pays 50")

    return lanes, parts()


def draw() -> str:
    without, told = _story(8, "Without a fence: B's payment is lost")
    fenced, told_again = _story(
        _PANEL + 8, "With a fence: the resource has seen 34, and refuses 33"
    )
    return picture(
        "A holder that was paused past its lease writes after its successor",
        2 * _PANEL + 8,
        [
            *told,
            *without.write(6.2, "B", "resource", "writes 50"),
            *without.write(8.9, "A", "resource", "writes 70", "bad"),
            without.note(2.2, "resource", "100"),
            without.note(6.5, "resource", "50"),
            without.note(8.9, "resource", "70: B never paid", "bad"),
            *told_again,
            *fenced.write(6.2, "B", "resource", "writes 50 with token 34"),
            *fenced.write(8.9, "A", "resource", "writes 70 with token 33", "bad"),
            fenced.note(2.2, "resource", "100, has seen 33"),
            fenced.note(5.7, "resource", "has seen 34, takes 50"),
            fenced.note(8.8, "resource", "refuses 33: still 50", "good"),
        ],
    )
