"""Which of several calls stands in the line of the consumers, where the others wait for it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from coordlock.runtime.promise import Promise

__all__ = ["Turns"]


class Turns:
    """Lets one call after the other go, in the order in which they came. Safe for threads.

    A call joins or leaves by one step of a list, and then lets the first in the list go. Ctrl-C may
    come between the two: then the call leaves once more.
    """

    def __init__(self) -> None:
        self._waiting: Final[list[Promise[None]]] = []

    def join(self, turn: Promise[None]) -> None:
        """Keep ``turn`` once all that came before have left."""
        self._waiting.append(turn)
        self._begin()

    def leave(self, turn: Promise[None]) -> None:
        """``turn`` is over, or not waited for any more. Idempotent."""
        with suppress(ValueError):
            self._waiting.remove(turn)
        self._begin()

    def _begin(self) -> None:
        for first in self._waiting[:1]:
            first.resolve(None)
