"""A mistake that coordlock might make: a patch of a few lines, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

from coordlock_faults.violation import Violation

from tests.faults.mutants.scenarios import Scenario
from tests.simulation.bad_day import BadDay

__all__ = ["Changes", "Mutant", "Play", "mutant", "nothing"]

#: Objects, the names of their attributes, and what these are changed to.
Changes = list[tuple[object, str, object]]

BOTH: Final = ("etcd", "zookeeper")


@dataclass(frozen=True, slots=True)
class Play:
    """A scenario that shows a mistake on these backends, and the violation that it shows as."""

    scenario: Scenario
    violation: type[Violation]
    backends: tuple[str, ...] = BOTH


@dataclass(frozen=True, slots=True)
class Mutant:
    """One thing wrong with coordlock, for as long as the context of a call lasts.

    Attributes:
        name: what coordlock then does; the mutant's name in its module, too.
        module: the name of that module.
        changes: what to patch, made anew for every context.
        breaks: what goes wrong for those who use the lock.
        played: how it is caught on real servers.
        simulated: the kinds of locks whose bad days catch it in the simulation.
        rare: whether the simulation takes long to find it, and so only in ``make test-faults``.
        worked: the workload whose clients show it, and the violation that it shows as.
    """

    name: str
    module: str
    changes: Callable[[], Changes]
    breaks: str
    played: tuple[Play, ...]
    simulated: tuple[type[BadDay], ...]
    worked: tuple[str, type[Violation]] | None = None
    rare: bool = False

    @property
    def path(self) -> str:
        """Where it is found, as a `testbed.soak.plan.Plan` names it."""
        return f"{self.module}:{self.name}"

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, attribute, new in self.changes():
                stack.enter_context(patch.object(target, attribute, new))
            yield


def mutant(
    breaks: str,
    *played: Play,
    simulated: tuple[type[BadDay], ...] = (),
    worked: tuple[str, type[Violation]] | None = None,
    rare: bool = False,
) -> Callable[[Callable[[], Changes]], Mutant]:
    """The mutant that makes the changes of the function below."""
    assert played or simulated or worked, "a mutant that no suite must catch"

    def enter(changes: Callable[[], Changes]) -> Mutant:
        name, module = changes.__name__, changes.__module__
        return Mutant(name, module, changes, breaks, played, simulated, worked, rare)

    return enter


def nothing(*_: object, **__: object) -> None:
    """Do not."""
