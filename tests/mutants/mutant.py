"""A mistake that coordlock might make: a patch of a few lines, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

from tests.simulation.bad_day import BadDay

__all__ = ["SUITES", "Changes", "Mutant", "mutant", "nothing"]

#: Objects, the names of their attributes, and what these are changed to.
Changes = list[tuple[object, str, object]]
#: Where the suites run on every backend.
SUITES: Final = "tests/contract/test_suites.py::"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One thing wrong with coordlock, for as long as the context of a call lasts.

    Attributes:
        name: what coordlock then does; the mutant's name in its module, too.
        changes: what to patch, made anew for every context.
        breaks: what goes wrong for those who use the lock.
        simulated: the kinds of locks whose bad days catch it in the simulation.
        failing: tests that it fails, as pytest names them; whatever else fails besides.
        rare: whether the simulation takes long to find it, and so only in ``make test-faults``.
    """

    name: str
    changes: Callable[[], Changes]
    breaks: str
    simulated: tuple[type[BadDay], ...]
    failing: tuple[str, ...]
    rare: bool

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, attribute, new in self.changes():
                stack.enter_context(patch.object(target, attribute, new))
            yield


def mutant(
    breaks: str,
    *failing: str,
    simulated: tuple[type[BadDay], ...] = (),
    rare: bool = False,
) -> Callable[[Callable[[], Changes]], Mutant]:
    """The mutant that makes the changes of the function below."""
    assert failing or simulated, "a mutant that no suite must catch"

    def enter(changes: Callable[[], Changes]) -> Mutant:
        return Mutant(changes.__name__, changes, breaks, simulated, failing, rare)

    return enter


def nothing(*_: object, **__: object) -> None:
    """Do not."""
