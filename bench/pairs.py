"""Two ways to do one thing, timed in turns, so that a noisy machine slows both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Ratio", "measure"]


@dataclass(frozen=True)
class Ratio:
    """How many times as long the second way takes.

    Attributes:
        median: of the rounds' ratios.
        low, high: the quartiles of the rounds' ratios.
        rounds: how many there were.
    """

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def measure(
    plain: Callable[[], object],
    other: Callable[[], object],
    *,
    rounds: int = 30,
    calls: int = 50,
) -> Ratio:
    """Time ``calls`` calls of each in every round, the first to go changing from round to round.

    The first round warms up and is not counted.
    """
    ratios = []
    for number in range(rounds + 1):
        ways = (plain, other) if number % 2 else (other, plain)
        seconds = {way: _seconds(way, calls) for way in ways}
        if number:
            ratios.append(seconds[other] / seconds[plain])
    low, median, high = statistics.quantiles(ratios, n=4)
    return Ratio(median, low, high, rounds)


def _seconds(call: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - started
