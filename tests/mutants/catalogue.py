"""All mutants by name, and the pairs of a mutant and what catches it."""

from __future__ import annotations

from typing import Final

from tests.mutants import (
    admission,
    commands,
    conversion,
    etcd,
    jobs,
    loss,
    recipes,
    removal,
    resources,
    zookeeper,
)
from tests.mutants.mutant import Mutant
from tests.simulation.bad_day import BadDay

__all__ = ["FAILING", "MUTANTS", "SIMULATED"]

MUTANTS: Final[dict[str, Mutant]] = {
    name: one
    for module in (
        *(admission, conversion, recipes, jobs, removal, loss),
        *(etcd, zookeeper, resources, commands),
    )
    for name, one in vars(module).items()
    if isinstance(one, Mutant)
}

#: The tests of a promise's home that must fail.
FAILING: Final[list[tuple[Mutant, str]]] = [
    (one, test) for one in MUTANTS.values() for test in one.failing
]

#: What the simulation must show.
SIMULATED: Final[list[tuple[Mutant, type[BadDay]]]] = [
    (one, kind) for one in MUTANTS.values() for kind in one.simulated
]
