"""A fencing token as a fence sees it: the number, and whether its grant shares the lock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from coordlock.errors import InvalidToken, Unsupported
from coordlock.model.claim import Claim, Mode

__all__ = ["MAX_TOKEN", "Fenceable", "FencingToken", "Presented", "check_resource"]

#: What a signed 64-bit column holds.
MAX_TOKEN: Final = 2**63 - 1

#: PostgreSQL stores no NUL, and UTF-8 no lone surrogates.
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")

#: Modes whose conflicting grants are ordered by their tokens under the rule of `Marks`; the value
#: tells whether grants of the mode share. Concurrent reads and writes are held along with newer
#: protected ones or with each other, so no order tells the stale from the live.
_SHARED: Final[dict[Claim, bool]] = {Mode.EX: False, Mode.PW: False, Mode.PR: True}


@runtime_checkable
class Fenceable(Protocol):
    """What a fence needs to know of a grant, such as a `coordlock.Grant`, or of a part of one.

    Where it has a ``check``, as grants have, that is called, and raises `LockLost`.
    """

    @property
    def name(self) -> str:
        """The lock's name."""

    @property
    def claim(self) -> Claim:
        """The mode, or the permit, that was granted."""

    @property
    def token(self) -> int:
        """The fencing token."""


@dataclass(frozen=True, slots=True)
class FencingToken:
    """The token that an operation presents to a fence.

    Attributes:
        value: the grant's token, 1 to 2**63 - 1. Raises `InvalidToken` for anything else.
        shared: whether it is the token of a read lock, which others may hold at the same time.
    """

    value: int
    shared: bool = False

    def __post_init__(self) -> None:
        if type(self.value) is not int or not 1 <= self.value <= MAX_TOKEN:
            raise InvalidToken(self.value)

    @classmethod
    def of(cls, presented: Presented, shared: bool = False) -> FencingToken:
        """The token that was ``presented``: a number, a grant, or what this returned before.

        A grant knows whether it is shared; for a number, ``shared`` tells it. Raises
        `InvalidToken`; `Unsupported` for a grant of a semaphore or of the modes CR, CW, NL; and for
        a grant what its ``check`` raises: `LockLost` when it was released or lost, `ClientClosed`.
        """
        if isinstance(presented, FencingToken):
            return presented
        if isinstance(presented, Fenceable):
            if presented.claim not in _SHARED:
                raise Unsupported(
                    f"the grant of {presented.name!r} (token {presented.token}) is of "
                    f"{presented.claim}. Several clients hold it at once, so a fence would refuse "
                    "live holders: use an exclusive, write or read lock, or grant.transaction()"
                )
            if (check := getattr(presented, "check", None)) is not None:
                check()
            return cls(presented.token, _SHARED[presented.claim])
        return cls(presented, shared)

    def conflicts(self, other: FencingToken) -> bool:
        """Whether the two grants cannot have been held at the same time."""
        return self.value != other.value and not (self.shared and other.shared)


#: What fences take for a token. Numbers are for tokens that came over a wire.
Presented = int | FencingToken | Fenceable


def check_resource(resource: str) -> str:
    """Return ``resource`` if it can name one, else raise TypeError or ValueError.

    All fences call it, so they accept the same names.
    """
    if not isinstance(resource, str):
        raise TypeError(f"a resource is named by a str, not {type(resource).__name__}")
    if _UNSTORABLE.search(resource):
        raise ValueError(
            f"{resource!r} names no resource: NUL and lone surrogates cannot be stored"
        )
    return resource
