"""Where a work queue keeps what: its keys, and what their names say.

``@work/<name>`` is written whenever an item becomes ready, and is there until the queue is deleted.
Consumers follow it. The rest lies below ``@items/<name>/``::

    tail                the number of the next item, and what was put last
    items/<number>      an item, until it is acknowledged
    ready/<entry>       an item that may be claimed, now or later
    claims/<entry>      an item that a worker has, and which worker
    dead/<entry>        an item that failed for good, and why

So each item has one entry, in one of three folders. A claim, or its end, moves the entry from one
folder to another. The name of an entry holds a time and a token, so no entry has the name of an
earlier one. A write that expects an entry at version 1 fails once the item has moved on. An
eviction writes a claim a second time: then the worker can't end the item.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple, Self

from coordlock.backend.data import Delete, Expect, Operation, Put
from coordlock.model.names import escape, internal

__all__ = [
    "FOLDER",
    "OLD",
    "Entry",
    "Layout",
    "creating",
    "ending",
    "later_than_now",
    "milliseconds",
    "number_of",
]

#: The folder whose keys are named as the work queues.
FOLDER: Final = "@work"


#: The names of old entries begin so, and those of new ones come before.
OLD: Final = "1."


class Entry(NamedTuple):
    """An item's state, as the name of its key says it. Names sort as entries do.

    Attributes:
        is_old: 1 if the item was claimed or delayed, 0 if it is new.
        at: when it is due, 0 for at once; since when a worker has it; or when it died. In
            milliseconds since 1970.
        number: the item's.
        token: the fencing token of its last claim; 0 for none.
        deliveries, failures: how often it was handed to a worker, and how often that has failed. In
            a claim: before that.
    """

    is_old: int
    at: int
    number: int
    token: int = 0
    deliveries: int = 0
    failures: int = 0

    @classmethod
    def parse(cls, name: str) -> Self:
        """The entry of that ``name``. Raises ValueError, or TypeError for too few numbers."""
        return cls(*map(int, name.split(".")))

    @property
    def id(self) -> str:
        """The item's id."""
        return str(self.number)

    def __str__(self) -> str:
        history = f"{self.token}.{self.deliveries}.{self.failures}"
        return f"{self.is_old}.{self.at:015d}.{self.number:016d}.{history}"


def number_of(id: object) -> int:
    """The number of the item with that ``id``. Raises ValueError, or TypeError for no text."""
    if not isinstance(id, str):
        raise TypeError(f"an item's id is a str, not {type(id).__name__}")
    if id.isascii() and id.isdecimal() and str(int(id)) == id:
        return int(id)
    raise ValueError(f"{id!r} is not an item's id, such as '17'")


def milliseconds() -> int:
    """Now, since 1970."""
    return int(time.time() * 1000)


def later_than_now() -> str:
    """What the names of entries that are not due sort after, and those that are due before."""
    return f"{OLD}{milliseconds() + 1:015d}"


class Layout:
    """The keys, and the names of the internal queues, of the work queue ``name``."""

    def __init__(self, data_root: str, name: str) -> None:
        base = f"{data_root}/@items/{escape(name)}"
        self.name: Final = name
        #: Written whenever an item becomes ready; there until the queue is deleted.
        self.mark: Final = f"{data_root}/{FOLDER}/{escape(name)}"
        #: The queue of the client that does the chores.
        self.chores: Final = internal(f"chores-{escape(name)}")
        #: The queue of the workers: one contender for each item at work.
        self.workers: Final = internal(f"work-{escape(name)}")
        self.tail: Final = f"{base}/tail"
        self.ready: Final = f"{base}/ready/"
        self.claims: Final = f"{base}/claims/"
        self.dead: Final = f"{base}/dead/"
        self._items: Final = f"{base}/items/"

    def item(self, number: int) -> str:
        """The key of an item."""
        return f"{self._items}{number}"


def creating(key: str, data: bytes) -> tuple[Operation, Operation]:
    """What makes a key that is new. The expectation saves ZooKeeper's client a request."""
    return Expect(key, 0), Put(key, data)


def ending(key: str, version: int = 1) -> tuple[Operation, Operation]:
    """What removes a key that was written ``version`` times, and nothing where it has gone."""
    return Expect(key, version), Delete(key)
