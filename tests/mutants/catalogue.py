"""All mutants by name, and the pairs of a mutant and a way to catch it that a suite runs."""

from __future__ import annotations

from typing import Final

from coordlock_faults.violation import Violation

from tests.mutants import (
    admission,
    conversion,
    etcd,
    jobs,
    loss,
    recipes,
    removal,
    resources,
    zookeeper,
)
from tests.mutants.mutant import Mutant, Play
from tests.simulation.bad_day import BadDay

__all__ = ["MUTANTS", "PLAYED", "SIMULATED", "WORKED"]

MUTANTS: Final[dict[str, Mutant]] = {
    name: one
    for module in (admission, conversion, recipes, jobs, removal, loss, etcd, zookeeper, resources)
    for name, one in vars(module).items()
    if isinstance(one, Mutant)
}

#: What the real servers must show.
PLAYED: Final[list[tuple[Mutant, Play]]] = [
    (one, play) for one in MUTANTS.values() for play in one.played
]

#: What clients at work must show.
WORKED: Final[list[tuple[Mutant, str, type[Violation]]]] = [
    (one, *one.worked) for one in MUTANTS.values() if one.worked is not None
]

#: What the simulation must show.
SIMULATED: Final[list[tuple[Mutant, type[BadDay]]]] = [
    (one, kind) for one in MUTANTS.values() for kind in one.simulated
]
