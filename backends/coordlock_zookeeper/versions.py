"""What is known about releases of the ZooKeeper server. Pure."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Version", "parse_version", "warnings_for"]

Version = tuple[int, int, int]

_VERSION: Final = re.compile(r"Zookeeper version: (\d+)\.(\d+)\.(\d+)")
_SUPPORTED: Final[Version] = (3, 8, 0)

#: What it is, and from which release until before which.
_DEFECTS: Final[tuple[tuple[str, tuple[tuple[Version, Version], ...]], ...]] = (
    (
        "an ephemeral node may outlive its session after a follower failed (ZOOKEEPER-2355, fixed "
        "in 3.4.11): `coordlock break` removes such a contender",
        (((0, 0, 0), (3, 4, 11)),),
    ),
    (
        "changes, contenders among them, may be lost when leaders change (ZOOKEEPER-4785, fixed in "
        "3.8.4 and 3.9.2)",
        (((3, 8, 0), (3, 8, 4)), ((3, 9, 0), (3, 9, 2))),
    ),
    (
        "changes, contenders among them, may be lost when leaders change (ZOOKEEPER-4925, fixed in "
        "3.9.4)",
        (((3, 9, 3), (3, 9, 4)),),
    ),
    (
        "a follower that shuts down may diverge from its ensemble (ZOOKEEPER-4712, fixed in 3.9.3)",
        (((3, 9, 0), (3, 9, 3)),),
    ),
    (
        "SASL DIGEST-MD5 may let in users that do not exist (ZOOKEEPER-4839, fixed in 3.9.3)",
        (((3, 9, 0), (3, 9, 3)),),
    ),
)


def parse_version(srvr: str) -> Version | None:
    """The version in the answer to the four-letter word ``srvr``; None without one."""
    match = _VERSION.search(srvr)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def warnings_for(version: Version) -> tuple[str, ...]:
    """What a user of locks should know about a server of ``version``."""
    found = [
        text
        for text, releases in _DEFECTS
        if any(first <= version < fixed for first, fixed in releases)
    ]
    if version < (3, 5, 3):
        found.append(
            "it has no container nodes (3.5.3 has): the nodes of unused lock names accumulate"
        )
    if version < _SUPPORTED:
        found.append("its release line gets no fixes any more (3.7 ended in February 2024)")
    return tuple(found)
