"""What a contender says of itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Announcement"]


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a contender publishes from the beginning.

    With ``stands_alone``, nothing is kept beside ``value``, not even who the owner is: for programs
    that read it as it is. The contender's id begins with ``identity``, hexadecimal digits by which
    it is known again in a later session.
    """

    value: bytes
    stands_alone: bool = False
    identity: str = ""
