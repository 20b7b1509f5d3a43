"""What a network does to those who use it: one way or both, to some or to all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from typing import Final

from coordlock.testing.connection import Faults

__all__ = ["Disturbance", "Pair", "Weather", "Wire"]

#: Who sends, and to whom; None is anybody.
Pair = tuple[str | None, str | None]


class Weather:
    """What TCP makes of lost packets: stalls until they were sent again, and at last a break.

    Args:
        random: decides.
        stalls: how often something stalls, 0 to 1.
        longest: for how long at most, in seconds. What comes after it waits behind it.
        breaks: how often a connection breaks, 0 to 1.
    """

    def __init__(
        self, random: Random, stalls: float = 0.05, longest: float = 0.5, breaks: float = 0.002
    ) -> None:
        self._random = random
        self._stalls = stalls
        self._longest = longest
        self._breaks = breaks

    def stall(self) -> float:
        """How long the next piece stalls, in seconds; raises ConnectionResetError for a break."""
        if self._random.random() < self._breaks:
            raise ConnectionResetError
        if self._random.random() < self._stalls:
            return self._random.uniform(0, self._longest)
        return 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Disturbance:
    """What is done to all that is sent in the directions of ``pairs``.

    Attributes:
        pairs: the directions.
        silent: nothing arrives until it ends; then everything does.
        delay: everything arrives so many seconds later.
        weather: and now and then something stalls, or a connection breaks.
    """

    pairs: tuple[Pair, ...]
    silent: bool = False
    delay: float = 0.0
    weather: Weather | None = None

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
        self._weathers: list[Weather] = []
        super().__init__()

    def obey(self, disturbances: Collection[Disturbance]) -> None:
        """Do what they say, and nothing else any more."""
        mine = [one for one in disturbances if one.touches(self.source, self.target)]
        self.is_held = any(one.silent for one in mine)
        self.delay = sum(one.delay for one in mine)
        self._weathers = [one.weather for one in mine if one.weather is not None]

    def latency(self) -> float:
        return self.delay + sum(weather.stall() for weather in self._weathers)
