"""What is read and written of the small values that a service keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Delete", "Expect", "Listing", "Operation", "Put", "Read", "VersionedValue", "Written"]


@dataclass(frozen=True, slots=True)
class VersionedValue:
    """What a key holds.

    Attributes:
        data: the value.
        version: 1 when the key was made, one more with each write since then.
    """

    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """Write ``data``; make the key where there is none."""

    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the key; nothing where there is none."""

    key: str


@dataclass(frozen=True, slots=True)
class Expect:
    """Fail the write unless the key is at ``version`` before it; 0 where there is none."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Read:
    """Tell what the key holds, which the same write does not change, once that is done."""

    key: str


Operation = Put | Delete | Expect | Read


@dataclass(frozen=True, slots=True)
class Listing:
    """What is kept in one place at one moment.

    Attributes:
        values: what each key holds, in the order of the keys' code points.
        revision: the service's state that this shows; a later state never has a smaller one.
    """

    values: Mapping[str, VersionedValue]
    revision: int


@dataclass(frozen=True, slots=True)
class Written:
    """What a write has done.

    Attributes:
        revision: a listing with this one or a later one shows the write, or what was written after
            it.
        time: the service's own clock at the write, in seconds since 1970. None where the answer
            does not carry it, and wherever nothing was written.
        values: what each key of a `Read` holds; keys that aren't there are left out.
    """

    revision: int
    time: float | None = None
    values: Mapping[str, VersionedValue] = field(default_factory=dict)
