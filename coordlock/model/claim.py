"""What a contender asks for: a mode of the lock, fixed or upgradeable, or a semaphore's permit.

The six modes and their compatibility are those of the VMS distributed lock manager, which most
lock managers since have kept (Snaman and Thiel, "The VAX/VMS Distributed Lock Manager", 1987).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import ClassVar, Final

__all__ = [
    "MAX_PERMITS",
    "AnyClaim",
    "Claim",
    "Convertible",
    "Mode",
    "Permit",
    "in_force",
    "parse_marker",
]

MAX_PERMITS: Final = 10_000


class Mode(Enum):
    """How a lock is shared. The value is the marker under which backends store it."""

    NL = "nl"  #: null: conflicts with nothing; shows presence in the queue
    CR = "cr"  #: concurrent read: conflicts with EX
    CW = "cw"  #: concurrent write: conflicts with PR, PW, EX
    PR = "rlock"  #: protected read, the usual read lock: conflicts with CW, PW, EX
    PW = "pw"  #: protected write: conflicts with all but NL and CR
    EX = "lock"  #: exclusive, the usual lock: conflicts with all but NL

    def __init__(self, marker: str) -> None:
        #: The text under which backends store this claim.
        self.marker: Final = marker
        #: How many of the nearest earlier contenders usually suffice to decide.
        self.window: Final = 1 if marker == "lock" else 8

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


@dataclass(frozen=True, slots=True)
class Convertible:
    """What an upgradeable lock asks for: a mode that changes while its contender keeps its place.

    The marker names no mode. So programs that do not know it take it for an exclusive lock. The
    contender publishes the mode and the rest as its value. It excludes all others of its kind. See
    `coordlock.model.conversion`.

    Attributes:
        mode: the mode that it holds, or asks for.
        target: the mode to which it is being upgraded; None while it is not.
        yields_to: the contenders behind it that go before its upgrade, as ranges of their orders:
            (first, last). None until that is decided.
    """

    mode: Mode
    target: Mode | None = None
    yields_to: tuple[tuple[int, int], ...] | None = None

    marker: ClassVar[str] = "convertible"
    #: Usually enough for either mode.
    window: ClassVar[int] = 8

    def excludes(self, mode: Mode, order: int) -> bool:
        """Whether a contender at ``order``, behind this one, must wait with ``mode``."""
        if self.mode.conflicts(mode):
            return True
        converts = self.target is not None and self.target.conflicts(mode)
        return converts and not self.lets_pass(order)

    def lets_pass(self, order: int) -> bool:
        """Whether its upgrade is known to wait for the contender behind it at ``order``."""
        return any(first <= order <= last for first, last in self.yields_to or ())

    def encode(self) -> bytes:
        """The value to publish."""
        from coordlock.model.record import encode  # few programs upgrade

        # By ``update``, earlier clients know that it excludes their own of this kind, too.
        fields: dict[str, object] = {"mode": self.mode.name, "update": True}
        if self.target is not None:
            fields |= {"target": self.target.name, "yields_to": self.yields_to}
        return encode(fields)

    @classmethod
    def decode(cls, value: bytes | None) -> Convertible:
        """What ``value`` says; an exclusive lock where that is not known."""
        from coordlock.model.record import NewerFormat, decode

        try:
            fields = decode(value or b"")
            target, ranges = fields.get("target"), fields.get("yields_to")
            return cls(
                Mode[fields["mode"]],
                None if target is None else Mode[target],
                None if ranges is None else tuple((int(low), int(high)) for low, high in ranges),
            )
        except (NewerFormat, ValueError, TypeError, KeyError, OverflowError):
            return cls(Mode.EX)

    def __str__(self) -> str:
        if self.target is None:
            return f"{self.mode}, upgradeable"
        return f"{self.mode}, to be {self.target.name}"


#: What locks and grants are of.
Claim = Mode | Permit
#: What contenders are of, in their queues.
AnyClaim = Claim | Convertible


def in_force(claim: AnyClaim) -> Claim:
    """``claim``, or the mode of a convertible one."""
    return claim.mode if isinstance(claim, Convertible) else claim


def parse_marker(marker: str, value: bytes | None = None) -> AnyClaim:
    """The claim that ``marker`` stands for; ``value`` is what its contender publishes, if known.

    An unknown marker counts as exclusive.
    """
    return Convertible.decode(value) if marker == Convertible.marker else _parsed(marker)


@lru_cache(maxsize=64)
def _parsed(marker: str) -> Claim:
    permits = re.fullmatch(r"permit([1-9]\d{0,4})", marker, re.ASCII)
    if permits and int(permits[1]) <= MAX_PERMITS:
        return Permit(int(permits[1]))
    try:
        return Mode(marker)
    except ValueError:
        return Mode.EX
