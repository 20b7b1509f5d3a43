"""Draws docs/pictures/fencing.svg: the same story without a fence and with one.

Run it after a change; a test compares the picture with what this draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

PICTURE: Final = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "fencing.svg"

WIDTH: Final = 860
LANE: Final = 62  #: height of one lane
LEFT: Final = 110
RIGHT: Final = WIDTH - 26
SECOND: Final = (RIGHT - LEFT) / 10  #: width of one unit of time

INK, PALE, PAUSE, BAD, GOOD = "#1f2933", "#9aa5b1", "#d9dee4", "#b42318", "#18794e"
HELD_BY_A, HELD_BY_B = "#c7d7f5", "#f6dfb4"

#: What the lanes are, from above.
LANES: Final = ("A", "lock", "B", "resource")


@dataclass(frozen=True)
class Write:
    """Who writes, when, and what."""

    lane: str
    at: float
    words: str
    colour: str = INK


@dataclass(frozen=True)
class State:
    """What the resource says, around a time."""

    around: float
    words: str
    colour: str = INK


def x(time: float) -> float:
    return round(LEFT + time * SECOND, 1)


def text(at_x: float, at_y: float, words: str, colour: str = INK, **more: str) -> str:
    attributes = {"font-size": "13", "text-anchor": "middle"} | {
        name.replace("_", "-"): value for name, value in more.items()
    }
    written = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    return f'<text x="{at_x}" y="{at_y}" fill="{colour}" {written}>{escape(words)}</text>'


def bar(start: float, end: float, y: float, colour: str, words: str = "") -> Iterator[str]:
    width = round((end - start) * SECOND, 1)
    yield f'<rect x="{x(start)}" y="{y - 11}" width="{width}" height="22" rx="4" fill="{colour}"/>'
    if words:
        yield text(x((start + end) / 2), y + 4.5, words)


def arrow(at: float, start: float, end: float, colour: str) -> str:
    tip = end - 14 if end > start else end + 14
    return (
        f'<path d="M{x(at)} {start} V{tip}" stroke="{colour}" stroke-width="1.8" '
        f'marker-end="url(#{"bad" if colour == BAD else "ink"})"/>'
    )


def panel(top: float, title: str, writes: list[Write], states: list[State]) -> Iterator[str]:
    """One telling of the story, ``top`` pixels down."""
    y = {name: top + 62 + number * LANE for number, name in enumerate(LANES)}
    yield text(16, top + 20, title, font_size="16", font_weight="600", text_anchor="start")
    for name in LANES:
        yield text(16, y[name] + 4.5, name, text_anchor="start", font_weight="600")
        yield f'<path d="M{LEFT} {y[name]} H{RIGHT}" stroke="{PALE}" stroke-dasharray="2 5"/>'
    yield from bar(0.3, 1.9, y["A"], HELD_BY_A, "reads 100")
    yield from bar(1.9, 7.4, y["A"], PAUSE, "paused: GC, SIGSTOP, a migrating VM …")
    yield from bar(7.4, 9.9, y["A"], HELD_BY_A, "goes on, pays 30")
    yield from bar(0.3, 3.9, y["lock"], HELD_BY_A, "held by A, token 33")
    yield from bar(4.0, 9.9, y["lock"], HELD_BY_B, "A's lease ran out; held by B, token 34")
    yield from bar(4.0, 7.1, y["B"], HELD_BY_B, "reads 100, pays 50")
    for write in writes:
        yield arrow(write.at, y[write.lane] + 11, y["resource"] - 8, write.colour)
        beside = y["resource"] - LANE / 2 + 6
        yield text(x(write.at) - 9, beside, write.words, write.colour, text_anchor="end")
    for state in states:
        weight = "400" if state.colour == INK else "600"
        below = y["resource"] + 22
        yield text(x(state.around), below, state.words, state.colour, font_weight=weight)


def picture() -> str:
    """The whole picture."""
    height = 2 * (len(LANES) * LANE + 62) + 8
    marker = (
        '<marker id="{0}" viewBox="0 0 10 10" refX="5" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{1}"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            'font-family="system-ui, sans-serif">',
            "<title>A holder that was paused past its lease writes after its successor</title>",
            f"<defs>{marker.format('ink', INK)}{marker.format('bad', BAD)}</defs>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *panel(
                8,
                "Without a fence: B's payment is lost",
                [Write("B", 6.2, "writes 50"), Write("A", 8.9, "writes 70", BAD)],
                [State(2.2, "100"), State(6.5, "50"), State(8.9, "70: B never paid", BAD)],
            ),
            *panel(
                height / 2 + 4,
                "With a fence: the resource has seen 34, and refuses 33",
                [
                    Write("B", 6.2, "writes 50 with token 34"),
                    Write("A", 8.9, "writes 70 with token 33", BAD),
                ],
                [
                    State(2.2, "100, has seen 33"),
                    State(5.7, "has seen 34, takes 50"),
                    State(8.8, "refuses 33: still 50", GOOD),
                ],
            ),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
    print(PICTURE)
