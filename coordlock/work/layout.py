"""Where a work queue keeps what: the keys of its records and items, and nothing of their meaning.

``@work/<name>`` is there from the first put on, until the queue is deleted. The rest lies below
``@items/<name>/``::

    state/tail                  the numbers of the next items, and what producers put last
    state/lane-0 .. lane-23     the next number of each lane
    state/changes               its version grows when an item is added to those that wait
    items/<segment>/<id>        an item, until it is acknowledged
    claims/<id>.<serial>        who works on an item
    kept/...                    items that were claimed or delayed, by the time when they are due

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
    "NEVER",
    "ItemId",
    "KeptItems",
    "Layout",
    "Serial",
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
#: When dead items are due, in seconds since 1970.
NEVER: Final = 3600e9
#: How many numbers in a row share a bucket, and how many buckets there are.
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


class KeptItems:
    """Items that were claimed or delayed, by the time when they are due; the dead are due `NEVER`.

    So a look for those that are due reads few others. One folder names the hours in use. The folder
    of an hour names its slots, each of a minute and of a bucket. A slot's folder has the items.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self.hours: Final = f"{base}/hours/"

    def slots(self, hour: str) -> str:
        """The folder that names the slots of ``hour``."""
        return f"{self._base}/hour-{hour}/"

    def folder(self, slot: str) -> str:
        """The folder of the items in ``slot``."""
        return f"{self._base}/slot-{slot}/"

    def adding(self, item: Serial, due: float, record: bytes) -> tuple[Operation, ...]:
        """The operations that put ``item`` there, which is due then, in seconds since 1970."""
        hour, slot = f"{due // 3600:.0f}", _slot(item.id, due)
        marks = Put(self.hours + hour, b""), Put(self.slots(hour) + slot, b"")
        return *marks, *creating(f"{self.folder(slot)}{item}", record)

    def dead(self, id: ItemId) -> str:
        """The folder where an item is if it is dead."""
        return self.folder(_slot(id, NEVER))


def _slot(id: ItemId, due: float) -> str:
    return f"{due // 60:.0f}.{id.number // _BUCKET % _BUCKETS}"


class Layout:
    """The keys, and the names of the internal queues, of the work queue ``name``."""

    def __init__(self, data_root: str, name: str) -> None:
        base = f"{data_root}/@items/{escape(name)}"
        self.name: Final = name
        #: There from the first put on, until the queue is deleted.
        self.mark: Final = f"{data_root}/{FOLDER}/{escape(name)}"
        #: The queue of the client that does the chores.
        self.chores: Final = internal(f"chores-{escape(name)}")
        #: The queue of the workers: one contender for each item at work.
        self.workers: Final = internal(f"work-{escape(name)}")
        self.state: Final = f"{base}/state/"
        self.tail: Final = f"{self.state}tail"
        self.lanes: Final = tuple(f"{self.state}lane-{lane}" for lane in range(LANES))
        self.changes: Final = f"{self.state}changes"
        self.claims: Final = f"{base}/claims/"
        self.kept: Final = KeptItems(f"{base}/kept")
        self._items: Final = f"{base}/items"

    def item(self, id: ItemId) -> str:
        """The key of an item."""
        kind = "d" if id.delayed else ""
        return f"{self._items}/{kind}{id.number // _SEGMENT % _SEGMENTS}/{id}"

    def claim(self, item: Serial) -> str:
        """The key of a claim."""
        return f"{self.claims}{item}"


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
