"""The names that Curator's recipes look for, before the sequence. Pure: no I/O, no kazoo.

Curator's "protected" names begin with ``_c_``, and the words of the marker are joined by dashes.
The last word is another one for its read and write locks and for its leader latch:

============= =========================== =====================================
style         stem of a writer            made for Curator's
============= =========================== =====================================
curator       ``_c_<id>-pw-lock-``        InterProcessMutex
curator-rw    ``_c_<id>-pw-__WRIT__``     InterProcessReadWriteLock
curator-latch ``_c_<id>-pw-latch-``       LeaderLatch
============= =========================== =====================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["ANNOUNCES_RELEASE", "is_shared_position", "read", "stem"]

_STEM: Final = re.compile(r"_c_(.+?)-((?:(?:cr|cw|pw|ex|permit[0-9]+|convertible)-)?r?lock|nl)-")
_ENDS: Final[dict[str, dict[str, str]]] = {
    "curator": {},
    "curator-rw": {"-rlock-": "-__READ__", "-lock-": "-__WRIT__"},
    "curator-latch": {"-lock-": "-latch-"},
}
_PLAIN: Final = {theirs: end for ends in _ENDS.values() for end, theirs in ends.items()}
# Curator's GUIDs have dashes, coordlock's have none.
_CURATORS_WRITER: Final = re.compile(r"_c_[0-9a-f]+-[0-9a-f-]+-__WRIT__")
#: The stems to which `nodes.announces_release` applies.
ANNOUNCES_RELEASE: Final = r"_c_[0-9a-f]{32}-ex-(?:lock-|__WRIT__|latch-)"


def stem(id: str, marker: str, style: str) -> str:
    """The name of a contender's znode, less its sequence; ``marker`` is that of kazoo's style."""
    return _replace_end(f"_c_{id}-{marker.replace('__', '-')}-", _ENDS[style])


def read(stem: str) -> tuple[str, str] | None:
    """The id, and the marker in kazoo's style; None if the stem is in none of Curator's styles."""
    if not stem.startswith("_c_"):
        return None
    match = _STEM.fullmatch(_replace_end(stem, _PLAIN))
    return None if match is None else (match[1], match[2].replace("-", "__"))


def is_shared_position(child: str) -> bool:
    """Whether another contender may enter at the position of ``child``, before those behind it.

    When a thread that holds Curator's write lock also takes the read lock, Curator (from 5.5 on)
    gives the second contender the sequence of the first.
    """
    return _CURATORS_WRITER.match(child) is not None


def _replace_end(text: str, ends: Mapping[str, str]) -> str:
    for end, other in ends.items():
        if text.endswith(end):
            return text.removesuffix(end) + other
    return text
