"""Lanes on which things happen from left to right, for the pictures that tell a story."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.pictures.canvas import WIDTH, arrow, box, path, text

LANE: Final = 62  #: height of one lane
LEFT: Final = 110
RIGHT: Final = WIDTH - 26
SECOND: Final = (RIGHT - LEFT) / 10  #: width of one unit of time


def x(time: float) -> float:
    return LEFT + time * SECOND


class Timeline:
    """The lanes of one telling, ``top`` pixels down, in the order of ``lanes``."""

    def __init__(self, top: float, lanes: tuple[str, ...]) -> None:
        self.top = top
        self.y = {name: top + 62 + number * LANE for number, name in enumerate(lanes)}

    def ground(self, title: str) -> Iterator[str]:
        """The title, the names of the lanes, and a line for each."""
        yield text(16, self.top + 20, title, size=16, bold=True, anchor="start")
        for name, y in self.y.items():
            yield text(16, y + 4.5, name, anchor="start", bold=True)
            yield path(f"M{LEFT} {y} H{RIGHT}", "pale", dashes="2 5", width=1)

    def bar(self, lane: str, start: float, end: float, role: str, words: str = "") -> Iterator[str]:
        """What goes on in a lane between two times."""
        y = self.y[lane]
        yield box(x(start), y - 11, (end - start) * SECOND, 22, role)
        if words:
            yield text(x((start + end) / 2), y + 4.5, words)

    def write(
        self, at: float, source: str, target: str, words: str, role: str = "ink"
    ) -> Iterator[str]:
        """What goes from one lane to another at a time, with words to its left."""
        begin, end = self.y[source], self.y[target]
        down = 1 if end > begin else -1
        yield arrow(x(at), begin + down * 11, x(at), end - down * 6, role)
        beside = self.y[target] - down * LANE / 2 + 6
        yield text(x(at) - 9, beside, words, role, anchor="end")

    def note(self, at: float, lane: str, words: str, role: str = "ink") -> str:
        """Words below a lane, around a time."""
        return text(x(at), self.y[lane] + 24, words, role, bold=role != "ink")
