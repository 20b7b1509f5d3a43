"""A transaction that commits after the lock's release loses an update; one inside does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.pictures.canvas import path, picture, text
from scripts.pictures.timelines import LANE, Timeline, x

LANES: Final = ("A", "lock", "B", "database")
_PANEL: Final = len(LANES) * LANE + 62


def _commit(lanes: Timeline, at: float, lane: str, value: str, role: str = "ink") -> Iterator[str]:
    yield from lanes.write(at, lane, "database", "commits " + value, role)


def _wrong(top: float) -> Iterator[str]:
    lanes = Timeline(top, LANES)
    yield from lanes.ground("The transaction is committed after the release: an update is lost")
    yield from lanes.bar("A", 0.6, 5.0, "a", "reads 7, writes 8")
    yield from lanes.bar("lock", 1.0, 4.0, "a", "held by A")
    yield from lanes.bar("lock", 4.1, 8.2, "b", "held by B")
    yield from lanes.bar("B", 4.3, 9.3, "b", "still reads 7, writes 8")
    yield from _commit(lanes, 5.0, "A", "8")
    yield from _commit(lanes, 9.3, "B", "8", "bad")
    yield lanes.note(2.4, "database", "7")
    yield lanes.note(5.0, "database", "8")
    yield lanes.note(9.1, "database", "8: A's is lost", "bad")


def _right(top: float) -> Iterator[str]:
    lanes = Timeline(top, LANES)
    yield from lanes.ground("The lock outside, the transaction inside: commit, then release")
    yield from lanes.bar("lock", 0.6, 4.6, "a", "held by A")
    yield from lanes.bar("A", 1.0, 4.1, "a", "reads 7, writes 8")
    yield from lanes.bar("lock", 4.7, 9.3, "b", "held by B")
    yield from lanes.bar("B", 5.1, 8.8, "b", "reads 8, writes 9")
    yield from _commit(lanes, 4.1, "A", "8")
    yield from _commit(lanes, 8.8, "B", "9")
    yield lanes.note(2.4, "database", "7")
    yield lanes.note(4.1, "database", "8")
    yield lanes.note(8.8, "database", "9: both count", "good")
    end = lanes.y["lock"] - 17
    for start, stop in ((0.6, 4.6), (4.7, 9.3)):
        yield path(f"M{x(start):.1f} {end} v-5 H{x(stop):.1f} v5", "muted")
    yield text(x(9.35), end + 2, "with lock", "muted", size=11, anchor="start")


def draw() -> str:
    return picture(
        "A commit after the release loses an update, a commit before it does not",
        2 * _PANEL + 8,
        [*_wrong(8), *_right(_PANEL + 8)],
    )
