"""Which group a name belongs to, so that many names make few series."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

__all__ = ["MAX_GROUPS", "OTHER", "Group", "by_prefix", "capped", "collapse_ids"]

#: The group of a name.
Group = Callable[[str], str]
#: How many groups a process tells apart.
MAX_GROUPS: Final = 100
#: The group of what comes after that.
OTHER: Final = "other"

#: Numbers, and what looks like the id of an object: hexadecimal with a digit, or a UUID.
_ID: Final = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\d+"
    r"|(?=[a-fA-F]*\d)[0-9a-fA-F]{8,})(?![0-9A-Za-z])"
)


def constant(_: str) -> str:
    """One group for all names: the default."""
    return "all"


def by_prefix(separators: str = "/:") -> Group:
    """The group is what comes before the first of ``separators``: ``order`` for ``order/17``."""
    split = re.compile(f"[{re.escape(separators)}]")
    return lambda name: split.split(name, maxsplit=1)[0]


def collapse_ids() -> Group:
    """The group is the name with ``*`` for each id: ``order/*`` for ``order/17``.

    Ids are numbers, UUIDs, and hexadecimal numbers of at least 8 digits.
    """
    return lambda name: _ID.sub("*", name)


def capped(group: Group, most: int = MAX_GROUPS) -> Group:
    """``group``, but `OTHER` for what would be more than ``most`` groups, and where it raises."""
    known: dict[str, None] = {}

    def cap(name: str) -> str:
        try:
            found = str(group(name))
        except Exception:
            return OTHER
        if found not in known:
            if len(known) >= most:
                return OTHER
            known[found] = None
        return found

    return cap
