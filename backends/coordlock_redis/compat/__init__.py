"""For clients that share names with redis-py's `Lock`: the option ``compat=redis-py``.

The files in ``lua`` replace some of the functions that operations call: ``functions`` for all of
them, and ``operations`` each for one.
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
    return usual(files(__name__, "functions"), files(__name__, "operations"))
