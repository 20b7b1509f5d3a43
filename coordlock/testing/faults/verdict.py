"""The verdict on a history: every invariant, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coordlock.testing.faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock.testing.faults.chains import chains
from coordlock.testing.faults.completeness import completeness
from coordlock.testing.faults.exclusion import exclusion
from coordlock.testing.faults.fifo import fifo
from coordlock.testing.faults.history import History
from coordlock.testing.faults.items import items
from coordlock.testing.faults.leaks import leaks
from coordlock.testing.faults.linearizability import decides, linearizability
from coordlock.testing.faults.liveness import liveness
from coordlock.testing.faults.loss import loss
from coordlock.testing.faults.observers import observers
from coordlock.testing.faults.published import published
from coordlock.testing.faults.register import register
from coordlock.testing.faults.release import release
from coordlock.testing.faults.sets import sets
from coordlock.testing.faults.tokens import tokens
from coordlock.testing.faults.victims import victims
from coordlock.testing.faults.violation import Violation

__all__ = ["CHECKERS", "Verdict", "judge"]

#: The invariants: each a pure function.
CHECKERS: Final[dict[str, Callable[[History, Bounds], list[Violation]]]] = {
    "completeness": completeness,
    "register": register,
    "exclusion": exclusion,
    "loss": loss,
    "release": release,
    "fifo": fifo,
    "sets": sets,
    "victims": victims,
    "tokens": tokens,
    "liveness": liveness,
    "leaks": leaks,
    "observers": observers,
    "published": published,
    "chains": chains,
    "items": items,
    "linearizability": linearizability,
}
#: Those that the ground truth adds to.
_WITH_TRUTH: Final = ("fifo", "tokens", "loss", "release", "leaks")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all checkers say of one history.

    Attributes:
        violations: by invariant, for every one that was checked.
        unchecked: invariants that were not checked, or only in part, and why.
        origin: where times in the text start, in nanoseconds.
    """

    violations: dict[str, list[Violation]]
    unchecked: dict[str, str]
    origin: int

    @property
    def holds(self) -> bool:
        """Whether nothing was violated."""
        return not any(self.violations.values())

    def all(self) -> list[Violation]:
        """All violations."""
        return [one for found in self.violations.values() for one in found]

    def __str__(self) -> str:
        lines: list[str] = []
        for invariant, found in self.violations.items():
            how = f"{len(found)} violations" if found else "holds"
            lines.append(f"{invariant}: {how}")
            lines.extend(one.told(self.origin) for one in found)
        lines.extend(f"{one} was not checked: {why}" for one, why in self.unchecked.items())
        return "\n".join(lines)


def judge(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> Verdict:
    """Check every invariant.

    Linearizability is left out where the history has faults against which it is not promised.
    """
    checkers = dict(CHECKERS)
    unchecked: dict[str, str] = {}
    if not decides(history):
        del checkers["linearizability"]
        unchecked["linearizability"] = "clients stood still, or contenders or data were lost"
    if not history.has_truth:
        for name in _WITH_TRUTH:
            unchecked[f"{name}, by the service's record"] = "there is no ground truth"
    if not history.resources:
        unchecked["register"] = "no operation was tried"
    if not history.counts:
        unchecked["leaks, by counting"] = "nothing was counted"
    violations = {name: check(history, bounds) for name, check in checkers.items()}
    return Verdict(violations, unchecked, history.origin)
