"""For clients that share names with redis-py's `Lock`: the option ``compat=redis-py``.

The file in ``lua`` replaces some of the functions that operations call.
"""

from __future__ import annotations

from typing import Final

from coordlock.settings import Option, choice, optional
from coordlock_redis.scripts import files, usual

__all__ = ["OPTION", "script"]

OPTION: Final = Option(
    "compat",
    optional(choice("redis-py")),
    None,
    "`redis-py`: exclude its locks of the same names.",
)


def script() -> bytes:
    """The script for such a client."""
    return usual(files(__name__, "compat"))
