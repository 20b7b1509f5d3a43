"""Where contenders live: ``<root>/<escaped name>/<marker>-<guid>``.

This is the layout of Go's ``concurrency.Mutex``: every key under the prefix of a queue is a
contender, and creation revisions order them. So ``etcdctl lock`` and Go services on the same prefix
exclude coordlock and are excluded by it; their keys count as exclusive locks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from coordlock.claim import Claim, Mode, parse_marker
from coordlock.contender import Entry
from coordlock.names import escape, unescape

__all__ = ["Layout", "prefix_end"]

_OWN: Final = re.compile(r"([a-z]+[0-9]*)-([0-9a-f]{32})")


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that start with ``prefix``, which ends with a slash."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _prefix(root: str) -> bytes:
    return f"{root.rstrip('/')}/".encode()


@lru_cache(maxsize=1024)  # asked for several times in each acquisition
def _queue(root: str, name: str) -> bytes:
    return _prefix(root) + escape(name).encode() + b"/"


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys below one root, which starts with a slash and does not end with one."""

    root: str

    @property
    def prefix(self) -> bytes:
        """What the keys of all queues start with."""
        return _prefix(self.root)

    def queue(self, name: str) -> bytes:
        """What the keys of the queue ``name`` start with.

        Escaped names hold no slash, so no queue lies inside another.
        """
        return _queue(self.root, name)

    def key(self, entry: Entry) -> bytes:
        """The key of ``entry``'s contender, the same for every attempt to create it."""
        return self.queue(entry.queue) + f"{entry.claim.marker}-{entry.id}".encode()

    def name(self, key: bytes) -> str | None:
        """The name of the queue that ``key`` is in, or None when it is in none."""
        component, slash, _ = key.removeprefix(self.prefix).partition(b"/")
        return unescape(component.decode("utf-8", "replace")) if slash else None

    def contender(self, queue: str, key: bytes) -> tuple[str, Claim]:
        """The id and the claim of the contender at ``key``; other programs' count as exclusive."""
        rest = key.removeprefix(self.queue(queue)).decode("utf-8", "backslashreplace")
        if match := _OWN.fullmatch(rest):
            return match[2], parse_marker(match[1])
        return rest, Mode.EX
