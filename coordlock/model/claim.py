"""What a contender asks for: a mode of the lock, or one permit of a semaphore.

The six modes and their compatibility are those of the VMS distributed lock manager, which most
lock managers since have kept (Snaman and Thiel, "The VAX/VMS Distributed Lock Manager", 1987).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["MAX_PERMITS", "Claim", "Mode", "Permit", "parse_marker"]

MAX_PERMITS: Final = 10_000


class Mode(Enum):
    """How a lock is shared. The value is the marker under which backends store it."""

    NL = "nl"  #: null: conflicts with nothing; shows presence in the queue
    CR = "cr"  #: concurrent read: conflicts with EX
    CW = "cw"  #: concurrent write: conflicts with PR, PW, EX
    PR = "rlock"  #: protected read, the usual read lock: conflicts with CW, PW, EX
    PW = "pw"  #: protected write: conflicts with all but NL and CR
    EX = "lock"  #: exclusive, the usual lock: conflicts with all but NL

    @property
    def marker(self) -> str:
        """The text under which backends store this claim."""
        return self.value

    @property
    def window(self) -> int:
        """How many nearest earlier contenders usually suffice to decide."""
        return 1 if self is Mode.EX else 8

    def conflicts(self, other: Mode) -> bool:
        """Whether the two modes cannot be held at the same time."""
        return other not in _COMPATIBLE[self]

    def joined(self, other: Mode) -> Mode:
        """The weakest mode that excludes what either of the two excludes, such as PW of CW and PR.

        The six modes are those of granularity locks, in the same lattice: CR is IS, CW is IX, PR is
        S, PW is SIX and EX is X (Gray et al., "Granularity of Locks and Degrees of Consistency in a
        Shared Data Base", 1976).
        """
        allowed = _COMPATIBLE[self] & _COMPATIBLE[other]
        return next(mode for mode in Mode if _COMPATIBLE[mode] <= allowed)

    def __repr__(self) -> str:
        return f"Mode.{self.name}"

    def __str__(self) -> str:
        return f"a lock in mode {self.name}"


_COMPATIBLE: Final[dict[Mode, frozenset[Mode]]] = {
    Mode.NL: frozenset(Mode),
    Mode.CR: frozenset({Mode.NL, Mode.CR, Mode.CW, Mode.PR, Mode.PW}),
    Mode.CW: frozenset({Mode.NL, Mode.CR, Mode.CW}),
    Mode.PR: frozenset({Mode.NL, Mode.CR, Mode.PR}),
    Mode.PW: frozenset({Mode.NL, Mode.CR}),
    Mode.EX: frozenset({Mode.NL}),
}


@dataclass(frozen=True, slots=True)
class Permit:
    """One of ``of`` permits of a semaphore (1 to 10,000)."""

    of: int

    def __post_init__(self) -> None:
        if type(self.of) is not int or not 1 <= self.of <= MAX_PERMITS:
            raise ValueError(f"permits must be an integer from 1 to {MAX_PERMITS}, not {self.of!r}")

    @property
    def marker(self) -> str:
        """The text under which backends store this claim."""
        return f"permit{self.of}"

    @property
    def window(self) -> int:
        """How many nearest earlier contenders suffice to decide."""
        return self.of

    def __str__(self) -> str:
        return f"a semaphore of {self.of}"


Claim = Mode | Permit


def parse_marker(marker: str) -> Claim:
    """The claim that ``marker`` stands for; an unknown one counts as exclusive."""
    permits = re.fullmatch(r"permit([1-9]\d{0,4})", marker, re.ASCII)
    if permits and int(permits[1]) <= MAX_PERMITS:
        return Permit(int(permits[1]))
    try:
        return Mode(marker)
    except ValueError:
        return Mode.EX
