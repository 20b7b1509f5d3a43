"""For clients that share names with redis-py's `Lock`: the option ``compat=redis-py``.

The files in ``lua`` replace some of the functions that the usual scripts call: ``begin`` in all of
them, behind the functions, and the others in the script of their name, before its operation.
"""

from __future__ import annotations

from typing import Final

from coordlock.settings import Option, choice, optional
from coordlock_redis.scripts import File, Scripts, parts

__all__ = ["OPTION", "SCRIPTS"]

OPTION: Final = Option(
    "compat",
    optional(choice("redis-py")),
    None,
    "`redis-py`: exclude its locks of the same names.",
)
_ADAPTED: Final = frozenset({"open", "heartbeat", "enqueue", "snapshot", "watch", "withdraw"})


def _files(name: str) -> list[File]:
    functions, expire, operation = parts(name)
    adapted = [(__name__, name)] if name in _ADAPTED else []
    return [*functions, (__name__, "begin"), expire, *adapted, operation]


SCRIPTS: Final = Scripts(_files)
