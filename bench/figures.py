"""Samples, and what is reported of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Spread", "percentile", "ratios", "spread"]


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles around it."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def spread(samples: Sequence[float]) -> Spread:
    """The median and the quartiles of ``samples``."""
    if len(samples) < 2:
        return Spread(samples[0], samples[0], samples[0])
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Spread(median, low, high)


def ratios(samples: Sequence[float], base: Sequence[float]) -> Spread:
    """How many times as much as ``base``, round by round: both hold one sample of each round."""
    return spread([one / other for one, other in zip(samples, base, strict=True)])


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that ``percent`` of all do not exceed."""
    ordered = sorted(samples)
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(0, int(rank) - 1)]
