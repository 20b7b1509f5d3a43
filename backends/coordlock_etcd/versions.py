"""Known bugs of etcd servers that bear on locks, by version."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["OLDEST", "warnings"]

#: The oldest release that this backend works with: the first with watch ids chosen by the client.
OLDEST: Final = (3, 4)

#: A bug, what became of it, and the first patch with that in each release line. Lines before the
#: first are affected, lines after the last are not.
_BUGS: Final = (
    (
        "leases may be revoked in spite of good keep-alives when a paused leader resumes"
        " (etcd issues 12528, 15247)",
        "for the most part fixed in",
        {(3, 4): 31, (3, 5): 13},
    ),
    (
        "keep-alives of a revoked lease may be answered as if it lived",
        "fixed in",
        {(3, 4): 38, (3, 5): 23, (3, 6): 5},
    ),
    (
        "linearizable reads may be stale after a pause (etcd issue 20418)",
        "fixed in",
        {(3, 4): 42, (3, 5): 28, (3, 6): 9},
    ),
)


def warnings(version: str) -> tuple[str, ...]:
    """What to know about a server of ``version``, such as ``3.4.23``; empty when nothing."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if not match:
        return ()
    major, minor, patch = map(int, match.groups())
    line = (major, minor)
    if line < OLDEST:
        return (f"etcd {version} is too old: coordlock needs 3.4 or later",)
    found = []
    for bug, became, fixes in _BUGS:
        # A line without a known fix has the bug if it is older than all fixed lines.
        fixed = fixes.get(line, patch + 1 if line < min(fixes) else 0)
        if patch < fixed:
            good = ", ".join(f"{a}.{b}.{c}" for (a, b), c in fixes.items())
            found.append(f"etcd {version}: {bug}; {became} {good}")
    return tuple(found)
