"""Where a work queue keeps what: the keys of its records and items, and nothing of their meaning.

The key ``<data root>/@work/<escaped name>`` is there when the queue is. Below it lies the rest::

    state/tail  state/head  state/bell      what changes: read, and followed, in one step
    items/<segment>/<id>                    an item, until it is done
    claims/<id>.<attempt>                   who is at work on it
    again/<id>.<attempts>                   to be taken before the head: few
    later, dead                             shelves, of those that wait for their time or for people

An item's key is written once and deleted once, and its number is never given again. Nor is a key of
an attempt. So whoever expects such a key at version 1 expects just that one, and a write that comes
late finds it gone.

No folder grows large: with a queue of up to 262,144 items, a segment holds 256 of them, and a
bucket 2,048. Nor do there come to be more and more, which on ZooKeeper would stay as empty nodes:
segments are used again and again.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from coordlock.backend import Delete, Expect, Operation, Put
from coordlock.model.names import escape, internal

__all__ = [
    "FOLDER",
    "Attempt",
    "ItemId",
    "Layout",
    "Shelf",
    "bucket_at",
    "bucket_of",
    "creating",
    "opening",
]

#: Whose keys are named as the work queues.
FOLDER: Final = "@work"
#: How many numbers in a row share a folder of items, or a bucket of a shelf; and how many folders
#: or buckets of the dead there are.
_SEGMENT: Final = 256
_SEGMENTS: Final = 1024
_BUCKET: Final = 1024
_BUCKETS: Final = 256
#: Seconds of time that share buckets of what is delayed.
_SPAN: Final = 60


class ItemId(NamedTuple):
    """An item's number. Those that were put with a delay are counted apart."""

    number: int
    delayed: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """The id that ``str`` has made ``text`` of. Raises ValueError for another text."""
        digits = text.removeprefix("d")
        if digits.isascii() and digits.isdecimal():
            id = cls(int(digits), digits is not text)
            if str(id) == text:
                return id
        raise ValueError(f"{text!r} is no item's id, such as '17' or 'd17'")

    def __str__(self) -> str:
        return f"d{self.number}" if self.delayed else str(self.number)


class Attempt(NamedTuple):
    """One of the times at which an item was taken; 0 before the first."""

    id: ItemId
    attempt: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The attempt that ``str`` has made ``text`` of. Raises ValueError for another text."""
        id, _, attempt = text.rpartition(".")
        if not (attempt.isascii() and attempt.isdecimal()):
            raise ValueError(f"{text!r} is no attempt, such as '17.1'")
        return cls(ItemId.parse(id), int(attempt))

    def __str__(self) -> str:
        return f"{self.id}.{self.attempt}"


class Shelf:
    """A place for any number of attempts, in buckets, with an index of the buckets in use."""

    def __init__(self, base: str) -> None:
        self._base = base
        #: The folder whose keys are named as the buckets.
        self.index: Final = f"{base}-index/"

    def mark(self, bucket: str) -> str:
        """The key that says that ``bucket`` is in use."""
        return self.index + bucket

    def folder(self, bucket: str) -> str:
        """The folder of what is in ``bucket``."""
        return f"{self._base}/{bucket}/"

    def key(self, bucket: str, attempt: Attempt) -> str:
        """The key of ``attempt`` in ``bucket``."""
        return f"{self._base}/{bucket}/{attempt}"

    def adding(self, bucket: str, attempt: Attempt, record: bytes) -> tuple[Operation, ...]:
        """What puts ``attempt`` there."""
        return Put(self.mark(bucket), b""), *creating(self.key(bucket, attempt), record)

    def clearing(self, bucket: str) -> tuple[Operation, Operation]:
        """What takes ``bucket``, which is empty then, out of use.

        On ZooKeeper a folder is a node, and goes along; elsewhere there is no such key.
        """
        return Delete(self.mark(bucket)), Delete(self.folder(bucket)[:-1])


class Layout:
    """The keys, and the names of the queues, of the work queue ``name``."""

    def __init__(self, data_root: str, name: str) -> None:
        base = f"{data_root}/{FOLDER}/{escape(name)}"
        #: There from the first put on.
        self.mark: Final = base
        self.name: Final = name
        #: The queue of the consumers: its holder takes next.
        self.takers: Final = internal(f"take-{escape(name)}")
        #: The queue of those at work, one contender for each claim.
        self.workers: Final = internal(f"work-{escape(name)}")
        self.state: Final = f"{base}/state/"
        self.tail: Final = f"{self.state}tail"
        self.head: Final = f"{self.state}head"
        self.bell: Final = f"{self.state}bell"
        self.claims: Final = f"{base}/claims/"
        self.again: Final = f"{base}/again/"
        self.later: Final = Shelf(f"{base}/later")
        self.dead: Final = Shelf(f"{base}/dead")
        self._items: Final = f"{base}/items"

    def item(self, id: ItemId) -> str:
        """The key of an item."""
        kind = "d" if id.delayed else ""
        return f"{self._items}/{kind}{id.number // _SEGMENT % _SEGMENTS}/{id}"

    def claim(self, attempt: Attempt) -> str:
        """The key of a claim."""
        return f"{self.claims}{attempt}"

    def returned(self, attempt: Attempt) -> str:
        """The key of an item that is to be taken again, after ``attempt``."""
        return f"{self.again}{attempt}"


def creating(key: str, data: bytes) -> tuple[Operation, Operation]:
    """What makes a key that is new. To say that it is spares ZooKeeper's client to find out."""
    return Expect(key, 0), Put(key, data)


def bucket_of(id: ItemId) -> str:
    """Where the shelf of the dead has an item."""
    return str(id.number // _BUCKET % _BUCKETS)


def bucket_at(due: float, id: ItemId) -> str:
    """Where the shelf of the delayed has an item that is ``due`` then, in seconds since 1970.

    Of many that are due at one time, each bucket has some, whatever their number.
    """
    return f"{int(due // _SPAN)}.{id.number // _BUCKET}"


def opening(bucket: str) -> float:
    """From when on something may be due in ``bucket``. Raises ValueError for no bucket's name."""
    return int(bucket.partition(".")[0]) * _SPAN
