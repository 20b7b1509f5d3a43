"""Which faults come when: decided by a seed and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from testbed.nemesis.catalogue import FAULTS, fitting
from testbed.nemesis.fault_maker import FaultMaker

__all__ = ["Episode", "Planned", "schedule"]

#: How often a second fault comes during the first.
_PAIRS: Final = 0.3
_CALM: Final = 0.5, 3.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault to come.

    Attributes:
        name: in the catalogue.
        after: seconds from the beginning of its episode.
        seconds: how long it lasts.
        seed: of all that it chooses itself.
    """

    name: str
    after: float
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class Episode:
    """Faults that overlap, and the seconds of calm that follow."""

    faults: tuple[Planned, ...]
    calm: float


def schedule(seed: int, names: Collection[str], system: str) -> Iterator[Episode]:
    """Episodes without end; none, where no fault in ``names`` is for the ``system``.

    Each fault comes once before any comes again.
    """
    random = Random(seed)
    suitable = fitting(names, system)
    deck: list[str] = []

    def draw(others: list[type[FaultMaker]]) -> str | None:
        areas = {other.area for other in others}
        return next((name for name in reversed(deck) if FAULTS[name].area not in areas), None)

    while suitable:
        faults: list[Planned] = []
        for _ in range(1 + (random.random() < _PAIRS)):
            if not deck:
                deck = random.sample(suitable, len(suitable))
            name = draw([FAULTS[one.name] for one in faults])
            if name is not None:
                deck.remove(name)
                lasts = FAULTS[name].lasts
                seconds = random.uniform(*random.choice(lasts)) if lasts else 0.0
                after = random.uniform(0, faults[0].seconds) if faults else 0.0
                faults.append(Planned(name, after, seconds, random.getrandbits(32)))
        yield Episode(tuple(faults), random.uniform(*_CALM))
