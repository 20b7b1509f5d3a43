"""Known defects of servers that bear on locks, by release."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Defect", "Version", "version_in", "warnings_about"]

#: Of a release: major, minor, patch.
Version = tuple[int, int, int]


class Defect(NamedTuple):
    """What is wrong with some releases.

    Attributes:
        text: what it is.
        releases: the first release that has it and the first that has not, for each release line.
    """

    text: str
    releases: Sequence[tuple[Version, Version]]


def version_in(text: str) -> Version | None:
    """The first version in ``text``, of three numbers; None without one."""
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def warnings_about(service: str, version: str, known: Sequence[Defect]) -> tuple[str, ...]:
    """A line for each of the ``known`` defects that a server of ``version`` has."""
    release = version_in(version)
    return tuple(
        f"{service} {version}: {defect.text} (not in "
        f"{', '.join(_shown(fixed) for _, fixed in defect.releases)} or later)"
        for defect in known
        if release and any(first <= release < fixed for first, fixed in defect.releases)
    )


def _shown(version: Version) -> str:
    return ".".join(map(str, version))
