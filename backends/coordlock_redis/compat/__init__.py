"""For clients that share names with redis-py's `Lock`: the option ``compat=redis-py``.

The files in ``lua`` replace some of the functions that operations call: ``begin`` for all of them,
and the others for the operation of their name.
"""

from __future__ import annotations

from typing import Final

from coordlock.settings import Option, choice, optional
from coordlock_redis.scripts import Script, files, operations, usual

__all__ = ["OPTION", "script"]

OPTION: Final = Option(
    "compat",
    optional(choice("redis-py")),
    None,
    "`redis-py`: exclude its locks of the same names.",
)


def script() -> Script:
    """The script for such a client."""
    adapted = operations(__name__, "open", "heartbeat", "enqueue", "snapshot", "watch", "withdraw")
    return usual(files(__name__, "begin"), adapted)
