"""The queue of one lock, with its holder and its waiters, before and after a release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.pictures.canvas import WIDTH, arrow, box, path, picture, text

CARD: Final = 172  #: width of a contender's card
GAP: Final = 22
HIGH: Final = 52
_PLACES: Final = [30 + number * (CARD + GAP) for number in range(4)]


def _card(place: int, y: float, token: int, who: str, role: str, *, holds: bool) -> Iterator[str]:
    x = _PLACES[place]
    yield box(x, y, CARD, HIGH, role, edge="ink" if holds else "pale")
    yield text(x + CARD / 2, y + 21, "holds" if holds else "waits", bold=holds)
    yield text(x + CARD / 2, y + 40, f"{who}, token {token}")


def _newcomer(place: int, y: float) -> Iterator[str]:
    x = _PLACES[place]
    yield box(x, y, CARD, HIGH, "paper", edge="pale", dashes="4 4")
    yield text(x + CARD / 2, y + 21, "the next to come", "muted")
    yield text(x + CARD / 2, y + 40, "joins at the end", "muted")


def _watches(place: int, y: float) -> Iterator[str]:
    """The waiter at ``place`` watches the contender before it."""
    begin, end = _PLACES[place] + 34, _PLACES[place - 1] + CARD - 34
    yield path(f"M{begin} {y} C{begin} {y - 26} {end} {y - 26} {end} {y - 2}", "muted", tip=True)
    yield text((begin + end) / 2, y - 25, "watches", "muted", size=12, on="card")


def _service(y: float, height: float, title: str) -> Iterator[str]:
    yield box(12, y, WIDTH - 24, height, "card")
    yield text(26, y + 22, title, "muted", anchor="start")


def _process(place: int, y: float, name: str, words: str) -> Iterator[str]:
    middle = _PLACES[place] + CARD / 2
    yield arrow(middle, y, middle, y - 50, "muted", dashes="3 3")
    yield text(middle, y + 15, name, bold=True)
    yield text(middle, y + 32, words, "muted", size=12)


def draw() -> str:
    first, second = 78, 300
    return picture(
        "A queue: the first contender holds, each later one watches the one before it",
        420,
        [
            *_service(12, 136, "the queue of the lock nightly-migration, in the service"),
            *_card(0, first, 33, "A", "a", holds=True),
            *_card(1, first, 34, "B", "b", holds=False),
            *_card(2, first, 35, "C", "c", holds=False),
            *_newcomer(3, first),
            *_watches(1, first),
            *_watches(2, first),
            *_process(0, 182, "process A", "does the work"),
            *_process(1, 182, "process B", "in acquire()"),
            *_process(2, 182, "process C", "in acquire()"),
            text(_PLACES[3] + CARD / 2, 182, "heartbeats keep each", "muted", size=12),
            text(_PLACES[3] + CARD / 2, 198, "process's session alive", "muted", size=12),
            *_service(238, 130, "A releases, or its session ends: its contender leaves"),
            *_card(0, second, 34, "B", "b", holds=True),
            *_card(1, second, 35, "C", "c", holds=False),
            *_newcomer(2, second),
            *_watches(1, second),
            text(
                WIDTH / 2,
                396,
                "Only B is woken. Each token is greater than the ones before, so a resource can "
                "refuse what A writes late.",
            ),
        ],
    )
