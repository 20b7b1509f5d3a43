"""Where a work queue keeps what: the keys of its records and items, and nothing of their meaning.

``@work/<name>`` is there from the first put on, until the queue is deleted. The rest lies below
``@items/<name>/``::

    state/tail                  the numbers of the next items, and what producers put last
    state/lane-0 .. lane-23     the next number of each lane
    state/bell                  its version grows when an item becomes ready, but not a new one
    items/<segment>/<id>        an item, until it is acknowledged
    claims/<id>.<serial>        who works on an item
    again/<id>.<serial>         an item that is ready, and was claimed or delayed before
    later/..., dead/...         items that wait for their time, or for people

**Lanes.** A number belongs to the lane that is its remainder by 24. A claim of a new item moves the
lane's next number on, and expects the lane as it was. So a new item is claimed once, and consumers
in different lanes never meet.

**Serials.** Whenever an item is claimed its serial grows, so no key of a claim is ever used again.
Whoever expects such a key at version 1 expects just that claim, and a write that comes late finds
it gone. An eviction writes the key a second time: then the worker can't end the item.

**Folders stay small**, because ZooKeeper lists a folder as a whole. With up to 262,144 items a
segment holds 256 of them. Segments are used again and again, because ZooKeeper keeps empty ones.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from coordlock.backend.data import Delete, Expect, Operation, Put
from coordlock.model.names import escape, internal

__all__ = [
    "FOLDER",
    "LANES",
    "DeadShelf",
    "ItemId",
    "Layout",
    "Serial",
    "Wheel",
    "creating",
    "emptied",
    "ending",
]

#: The folder whose keys are named as the work queues.
FOLDER: Final = "@work"
#: How many consumers can claim new items at the same time without meeting.
LANES: Final = 24
#: How many numbers in a row share a folder of items, and how many folders there are.
_SEGMENT: Final = 256
_SEGMENTS: Final = 1024
#: How many numbers in a row share a bucket of the delayed or the dead; how many of the dead exist.
_BUCKET: Final = 1024
_BUCKETS: Final = 256


class ItemId(NamedTuple):
    """An item's number. Items that were put with a delay have numbers of their own."""

    number: int
    delayed: bool = False

    @classmethod
    def parse(cls, text: object) -> Self:
        """The id that ``str`` has made ``text`` of. Raises ValueError, or TypeError for no text."""
        if not isinstance(text, str):
            raise TypeError(f"an item's id is a str, not {type(text).__name__}")
        digits = text.removeprefix("d")
        if digits.isascii() and digits.isdecimal():
            id = cls(int(digits), digits is not text)
            if str(id) == text:
                return id
        raise ValueError(f"{text!r} is not an item's id, such as '17' or 'd17'")

    def __str__(self) -> str:
        return f"d{self.number}" if self.delayed else str(self.number)


class Serial(NamedTuple):
    """An item, and how often it was claimed so far; 0 before the first claim."""

    id: ItemId
    serial: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """What ``str`` has made ``text`` of. Raises ValueError for another text."""
        id, _, serial = text.rpartition(".")
        if not (serial.isascii() and serial.isdecimal()):
            raise ValueError(f"{text!r} names no claim, such as '17.1'")
        return cls(ItemId.parse(id), int(serial))

    @property
    def next(self) -> Self:
        """The next claim of the item."""
        return self._replace(serial=self.serial + 1)

    def __str__(self) -> str:
        return f"{self.id}.{self.serial}"


class DeadShelf:
    """Dead items in buckets of up to 2,048, and an index of the buckets in use."""

    def __init__(self, base: str) -> None:
        self._base = base
        #: The folder whose keys are named as the buckets.
        self.index: Final = f"{base}/index/"

    def folder(self, bucket: str) -> str:
        """The folder of what is in ``bucket``."""
        return f"{self._base}/bucket-{bucket}/"

    def folder_of(self, id: ItemId) -> str:
        """The folder where an item would be."""
        return self.folder(_bucket_of(id))

    def adding(self, one: Serial, record: bytes) -> tuple[Operation, ...]:
        """The operations that put ``one`` there."""
        mark = Put(self.index + _bucket_of(one.id), b"")
        return mark, *creating(f"{self.folder_of(one.id)}{one}", record)


class Wheel:
    """Delayed items by hour, minute and second: looking for those that are due reads few others.

    A folder of the first level names the hours in use; that of an hour names its minutes, and that
    of a minute its seconds, each with the number of a bucket of up to 2,048 items.
    """

    #: Seconds that a slot of each level covers. Below the last level are the items.
    SPANS: Final = (3600, 60, 1)

    def __init__(self, base: str) -> None:
        self._base = base

    def folder(self, level: int = 0, slot: str = "all") -> str:
        """The folder, of this level, of what is in ``slot`` of the level above."""
        return f"{self._base}/{level}-{slot}/"

    def adding(self, one: Serial, due: float, record: bytes) -> tuple[Operation, ...]:
        """The operations that put ``one``, which is ``due`` then in seconds since 1970, there."""
        slots = [str(int(due // span)) for span in self.SPANS]
        slots[-1] += f".{one.id.number // _BUCKET}"
        folders = map(self.folder, range(len(slots) + 1), ("all", *slots))
        *indexes, last = folders
        marks = (Put(index + slot, b"") for index, slot in zip(indexes, slots, strict=True))
        return *marks, *creating(f"{last}{one}", record)

    def opens(self, level: int, slot: str) -> float:
        """From when on items of ``slot`` may be due. Raises ValueError for no name of a slot."""
        return float(int(slot.partition(".")[0]) * self.SPANS[level])


class Layout:
    """The keys, and the names of the internal queues, of the work queue ``name``."""

    def __init__(self, data_root: str, name: str) -> None:
        base = f"{data_root}/@items/{escape(name)}"  # no queue's: those begin with take- and work-
        self.name: Final = name
        #: There from the first put on, until the queue is deleted.
        self.mark: Final = f"{data_root}/{FOLDER}/{escape(name)}"
        #: The queue of consumers that wait for an item.
        self.line: Final = internal(f"take-{escape(name)}")
        #: The queue of the workers: one contender for each item at work.
        self.workers: Final = internal(f"work-{escape(name)}")
        self.state: Final = f"{base}/state/"
        self.tail: Final = f"{self.state}tail"
        self.lanes: Final = tuple(f"{self.state}lane-{lane}" for lane in range(LANES))
        self.bell: Final = f"{self.state}bell"
        self.claims: Final = f"{base}/claims/"
        self.again: Final = f"{base}/again/"
        self.later: Final = Wheel(f"{base}/later")
        self.dead: Final = DeadShelf(f"{base}/dead")
        self._items: Final = f"{base}/items"

    def item(self, id: ItemId) -> str:
        """The key of an item."""
        kind = "d" if id.delayed else ""
        return f"{self._items}/{kind}{id.number // _SEGMENT % _SEGMENTS}/{id}"

    def claim(self, one: Serial) -> str:
        """The key of a claim."""
        return f"{self.claims}{one}"

    def ready(self, one: Serial) -> str:
        """The key of an item that is ready to be claimed again, or after its delay."""
        return f"{self.again}{one}"


def creating(key: str, data: bytes) -> tuple[Operation, Operation]:
    """What makes a key that is new. The expectation saves ZooKeeper's client a request."""
    return Expect(key, 0), Put(key, data)


def ending(key: str, version: int = 1) -> tuple[Operation, Operation]:
    """What removes a key that was written ``version`` times, and nothing where it has gone."""
    return Expect(key, version), Delete(key)


def emptied(mark: str, folder: str) -> tuple[Operation, Operation]:
    """What takes ``folder``, which is empty then, out of use.

    ZooKeeper keeps a folder as a node, which goes too. Elsewhere there is no such key.
    """
    return Delete(mark), Delete(folder[:-1])


def _bucket_of(id: ItemId) -> str:
    return str(id.number // _BUCKET % _BUCKETS)
