"""The verdict on a history: every invariant, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.chains import chains
from coordlock_faults.completeness import completeness
from coordlock_faults.exclusion import exclusion
from coordlock_faults.fifo import fifo
from coordlock_faults.history import History
from coordlock_faults.items import items
from coordlock_faults.leaks import leaks
from coordlock_faults.liveness import liveness
from coordlock_faults.loss import loss
from coordlock_faults.observers import observers
from coordlock_faults.published import published
from coordlock_faults.register import register
from coordlock_faults.release import release
from coordlock_faults.sets import sets
from coordlock_faults.tokens import tokens
from coordlock_faults.victims import victims
from coordlock_faults.violation import Violation

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
    """Check every invariant."""
    unchecked: dict[str, str] = {}
    if not history.has_truth:
        for name in _WITH_TRUTH:
            unchecked[f"{name}, by the service's record"] = "there is no ground truth"
    if not history.resources:
        unchecked["register"] = "no operation was tried"
    violations = {name: check(history, bounds) for name, check in CHECKERS.items()}
    return Verdict(violations, unchecked, history.origin)
