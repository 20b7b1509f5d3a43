"""What happened when, in one run: as little of its history as a picture needs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Self

from coordlock_faults.events import FOREVER, Reach
from coordlock_faults.overlap import overlaps

from testbed.soak.judgement import Judgement

__all__ = ["Bar", "Strip"]

#: Seconds over which grants are counted.
_BUCKET: Final = 1.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A fault, from ``start`` for ``length`` seconds."""

    kind: str
    reach: Reach
    start: float
    length: float


@dataclass(frozen=True, slots=True)
class Strip:
    """One run on the time line of all. Times are in seconds since the first run began.

    Attributes:
        start, end: of the run.
        faults: what the nemesis did.
        grants: how many there were, by the second in which they were made.
        refused: when the resource refused an operation.
        overlaps: when overlaps that a fault explains began.
        violations: when the events happened that prove violations.
    """

    start: float
    end: float
    faults: tuple[Bar, ...]
    grants: dict[float, int]
    refused: tuple[float, ...]
    overlaps: tuple[float, ...]
    violations: tuple[float, ...]

    @classmethod
    def of(cls, judgement: Judgement, began: float) -> Self:
        """The strip of a run that began ``began`` seconds after the first one."""

        history = judgement.history

        def when(at: int) -> float:
            return began + (at - history.origin) / 1e9

        grants: Counter[float] = Counter()
        for attempt in history.granted:
            assert attempt.granted is not None
            grants[when(attempt.granted.at) // _BUCKET * _BUCKET] += 1
        operations = [one for kept in history.resources.values() for one in kept.operations]
        return cls(
            start=began,
            end=when(history.end),
            faults=tuple(
                Bar(
                    one.began.kind,
                    one.began.reach,
                    when(one.begins),
                    (min(one.ends, history.end if one.ends == FOREVER else one.ends) - one.begins)
                    / 1e9,
                )
                for one in history.faults
            ),
            grants=dict(grants),
            refused=tuple(when(one.refused.at) for one in operations if one.refused),
            overlaps=tuple(
                when(one.start) for one in overlaps(history, judgement.bounds) if one.excuses
            ),
            violations=tuple(
                when(event.at) for one in judgement.verdict.all() for event in one.events[:1]
            ),
        )
