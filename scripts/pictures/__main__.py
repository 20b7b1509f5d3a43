"""Draws every picture of the package into docs/pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from scripts.pictures import acquire, dashboard, fencing, queue, storage, transaction

DIRECTORY: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"

#: What draws each file.
PICTURES: Final[dict[str, Callable[[], str]]] = {
    "acquire.svg": acquire.draw,
    "dashboard.svg": dashboard.draw,
    "fencing.svg": fencing.draw,
    "queue.svg": queue.draw,
    "storage.svg": storage.draw,
    "transaction.svg": transaction.draw,
}


def main() -> None:
    for name, draw in PICTURES.items():
        (DIRECTORY / name).write_text(draw(), "utf-8")
        print(DIRECTORY / name)


if __name__ == "__main__":
    main()
