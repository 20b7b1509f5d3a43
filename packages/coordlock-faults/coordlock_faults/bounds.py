"""How late something may be before it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_BOUNDS", "Bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a run promises. Times are in nanoseconds.

    Attributes:
        signal: how late a process that runs may tell of a loss, for want of processor time.
        notice: how long after its contender was removed a holder is told at the latest, whatever
            the network. More than the time-to-live, which is when it tells itself.
        recovery: how long after the last fault was healed a waiter is answered at the latest. More
            than the time-to-live, plus all that waiters hold the lock one after the other.
        idle: for how long a worker without an item waits for the next one, and until its removal
            has reached the service.
        findings: how many violations of one invariant are listed, at most.
    """

    signal: int = 500_000_000
    notice: int = 15_000_000_000
    recovery: int = 60_000_000_000
    idle: int = 30_000_000_000
    findings: int = 100


DEFAULT_BOUNDS: Final = Bounds()
