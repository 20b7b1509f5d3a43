"""Where contenders live: ``<root>/<escaped name>/<marker>-<guid>``.

The slash that begins the root may be left out.

This is the layout of Go's ``concurrency.Mutex``: every key under the prefix of a queue is a
contender, and creation revisions order them. So ``etcdctl lock`` and Go services on the same prefix
exclude coordlock and are excluded by it; their keys count as exclusive locks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

from coordlock.model.claim import AnyClaim, Mode, parse_marker
from coordlock.model.contender import Entry
from coordlock.model.names import escape, unescape

__all__ = ["Layout", "prefix_end"]

_OWN: Final = re.compile(r"([a-z]+[0-9]*)-([0-9a-f]{32})")


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that start with ``prefix``, which ends with a slash.

    The empty prefix stands for all keys: etcd's own sign for no end is a zero byte.
    """
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\0"


@lru_cache(maxsize=1024)  # asked for several times in each acquisition
def _queue(prefix: bytes, name: str) -> bytes:
    return prefix + escape(name).encode() + b"/"


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of all queues: those that start with ``prefix``, which is empty or ends in a slash.

    To etcd a key is just bytes. So ``/orders/`` and ``orders/`` are two queues: `etcdctl lock
    /orders` is in the first, `etcdctl lock orders` in the second.
    """

    prefix: bytes

    @classmethod
    def below(cls, root: str, *, leading_slash: bool = True) -> Self:
        """The layout below ``root``, which starts with a slash; ``/`` is the top."""
        prefix = f"{root.rstrip('/')}/"
        return cls((prefix if leading_slash else prefix[1:]).encode())

    def queue(self, name: str) -> bytes:
        """What the keys of the queue ``name`` start with.

        Escaped names hold no slash, so no queue lies inside another.
        """
        return _queue(self.prefix, name)

    def key(self, entry: Entry) -> bytes:
        """The key of ``entry``'s contender, the same for every attempt to create it."""
        return self.queue(entry.queue) + f"{entry.claim.marker}-{entry.id}".encode()

    def name(self, key: bytes) -> str | None:
        """The name of the queue that ``key`` is in, or None if it is in no queue."""
        component, slash, _ = key.removeprefix(self.prefix).partition(b"/")
        return unescape(component.decode("utf-8", "replace")) if slash else None

    def at(self, path: str) -> bytes:
        """What is kept at the absolute ``path``: a key, or a prefix where it ends with a slash."""
        key = path.encode("utf-8", "surrogateescape")
        return key if self.has_slash else key[1:]

    def path(self, key: bytes) -> str:
        """The absolute path of ``key``; see `at`."""
        slash = "" if self.has_slash else "/"
        return slash + key.decode("utf-8", "surrogateescape")

    @property
    def has_slash(self) -> bool:
        """Whether keys begin with a slash, as paths do."""
        return self.prefix.startswith(b"/")

    def contender(self, queue: str, key: bytes, value: bytes | None = None) -> tuple[str, AnyClaim]:
        """The contender's id and claim, from its ``key`` and what it publishes, if that is known.

        Those of other programs count as exclusive.
        """
        rest = key.removeprefix(self.queue(queue)).decode("utf-8", "backslashreplace")
        if match := _OWN.fullmatch(rest):
            return match[2], parse_marker(match[1], value)
        return rest, Mode.EX
