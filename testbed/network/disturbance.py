"""What a network does to those who use it: one way or both, to some or to all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from coordlock.testing.connection import Faults

__all__ = ["Disturbance", "Pair", "Wire"]

#: Who sends, and to whom; None is anybody.
Pair = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Disturbance:
    """What is done to all that is sent in the directions of ``pairs``.

    Attributes:
        pairs: the directions.
        silent: nothing arrives until it ends; then everything does.
        delay: everything arrives so many seconds later.
    """

    pairs: tuple[Pair, ...]
    silent: bool = False
    delay: float = 0.0

    def touches(self, source: str | None, target: str | None) -> bool:
        """Whether it is about what ``source`` sends to ``target``."""
        return any(a in (None, source) and b in (None, target) for a, b in self.pairs)


class Wire(Faults):
    """One direction between two: whatever ``source`` sends to ``target``, on all connections.

    None is somebody who is not known.
    """

    def __init__(self, source: str | None, target: str | None) -> None:
        self.source: Final = source
        self.target: Final = target
        super().__init__()

    def obey(self, disturbances: Collection[Disturbance]) -> None:
        """Do what they say, and nothing else any more."""
        mine = [one for one in disturbances if one.touches(self.source, self.target)]
        self.is_held = any(one.silent for one in mine)
        self.delay = sum(one.delay for one in mine)
