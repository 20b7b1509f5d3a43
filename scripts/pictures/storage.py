"""What is stored where, and what removes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.pictures.canvas import WIDTH, box, picture, text

ROW: Final = 46

#: What is at each place, and the colour of how long it stays.
BELOW_THE_ROOT: Final = (
    ("<name>/...", "contenders: of locks, elections, groups, barriers, workers", "a"),
    ("@waits/...", "who waits for whom, to find deadlocks", "a"),
    ("@counters/  @latches/  @gates/  @barriers/", "one record for each", "b"),
    ("@values/<name>", "the value of a lock", "b"),
    ("@release-requests/<name>", "requests to release a lock", "b"),
    ("@work/<name>  @items/<name>/...", "the items of a work queue", "b"),
)
ELSEWHERE: Final = (
    ("/shop/limit", "in the service, outside of the root: your values", "c"),
    ("fence: alice, newest token 34", "in your database, Redis or files: the marks of fences", "c"),
)
KEY: Final = (
    ("a", "leaves with its client's session"),
    ("b", "stays when all clients have gone"),
    ("c", "yours: it goes when you say so"),
)


def _rows(top: float, rows: tuple[tuple[str, str, str], ...]) -> Iterator[str]:
    for number, (place, what, role) in enumerate(rows):
        y = top + number * ROW
        yield box(30, y, 372, ROW - 10, role)
        yield text(44, y + 23, place, anchor="start", code=True)
        yield text(418, y + 23, what, anchor="start")


def draw() -> str:
    inside = len(BELOW_THE_ROOT) * ROW + 48
    outside = inside + 28
    key = outside + len(ELSEWHERE) * ROW + 44
    return picture(
        "What is stored where, and what removes it",
        key + 34,
        [
            box(12, 12, WIDTH - 24, inside, "card"),
            text(26, 36, "in the service, below the root", "muted", anchor="start"),
            *_rows(52, BELOW_THE_ROOT),
            text(26, outside + 16, "elsewhere", "muted", anchor="start"),
            *_rows(outside + 28, ELSEWHERE),
            *(
                part
                for number, (role, words) in enumerate(KEY)
                for part in (
                    box(30 + number * 262, key - 1, 22, 16, role),
                    text(60 + number * 262, key + 12, words, size=12, anchor="start"),
                )
            ),
        ],
    )
