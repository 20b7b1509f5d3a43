"""What the records of a work queue say, and how they are written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple, Self, cast

from coordlock.backend import Listing, Stored
from coordlock.errors import BackendError, QueueMismatch
from coordlock.model.contender import Contender, Snapshot
from coordlock.work.layout import Attempt, ItemId, Layout

__all__ = [
    "Again",
    "Claim",
    "Dead",
    "Item",
    "Made",
    "State",
    "Tail",
    "attempts",
    "head_record",
    "parsed_id",
]

#: How records and keys are laid out. Another number is of another release, and refused.
LAYOUT: Final = 1
#: Of so many producers the tail says what they put last.
_PRODUCERS: Final = 64
#: How the fields of records are read.
_TYPES: Final[Mapping[str, Callable[[Any], Any]]] = {"str": str, "int": int, "float": float}


class Made(NamedTuple):
    """What a producer's last put was, and the numbers that its items have, from these on."""

    operation: int
    next: int
    delayed: int


@dataclass(frozen=True, slots=True)
class Tail:
    """Where items are put.

    Attributes:
        next: the number of the next item.
        delayed: the number of the next one that is put with a delay.
        last: of the producers that put last, the last of all at the end, what each put last.
    """

    next: int = 1
    delayed: int = 1
    last: Mapping[str, Made] = field(default_factory=dict)

    def after(self, producer: str, operation: int, items: int, delayed: int) -> Tail:
        """The tail after ``producer`` has put so many items, some of them with a delay."""
        last = {one: made for one, made in self.last.items() if one != producer}
        while len(last) >= _PRODUCERS:
            del last[next(iter(last))]
        last[producer] = Made(operation, self.next, self.delayed)
        return Tail(self.next + items, self.delayed + delayed, last)

    def made(self, producer: str, operation: int) -> Made | None:
        """What ``operation`` of ``producer`` has put; None where it was not made.

        Raises LookupError where so many others have put since that the tail can't tell.
        """
        made = self.last.get(producer)
        if made is not None:
            return made if made.operation == operation else None
        if operation > 1 or len(self.last) >= _PRODUCERS:
            raise LookupError(f"{len(self.last)} other producers have put items since")
        return None

    def encode(self) -> bytes:
        """What is stored."""
        return _encoded(next=self.next, delayed=self.delayed, last=self.last)

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> Self:
        """The tail with what was ``found``."""
        last = {str(one): Made(*map(int, made)) for one, made in found["last"].items()}
        return cls(int(found["next"]), int(found["delayed"]), last)


@dataclass(frozen=True, slots=True)
class State:
    """What changes in a queue, at one moment.

    Attributes:
        tail: where items are put.
        head: the number of the next item to be taken, of those that were put without delay.
        versions: of the tail, the head and the bell, which is rung for all that becomes ready, or
            will, elsewhere than at the tail. None of the three keys is ever deleted.
    """

    tail: Tail
    head: int
    versions: tuple[int, int, int]

    @classmethod
    def read(cls, layout: Layout, listing: Listing) -> Self:
        """What ``listing``, of the folder of the state, says.

        Raises `QueueMismatch` for the records of another release.
        """
        tail = _read(layout, layout.tail, listing, {"next": 1, "delayed": 1, "last": {}})
        head = _read(layout, layout.head, listing, {"next": 1})
        keys = layout.tail, layout.head, layout.bell
        found = (listing.values.get(key) for key in keys)
        one, two, three = (0 if stored is None else stored.version for stored in found)
        try:
            return cls(Tail.decode(tail), int(head["next"]), (one, two, three))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _damaged(layout.state, error) from None

    @property
    def waiting(self) -> int:
        """How many items stand between head and tail."""
        return max(0, self.tail.next - self.head)


def head_record(next: int) -> bytes:
    """What is stored as the head."""
    return _encoded(next=next)


@dataclass(frozen=True, slots=True)
class Item:
    """What was put, and when, by the clock of who did."""

    put_at: float
    data: bytes

    def encode(self) -> bytes:
        """What is stored: a line of JSON, then the data as they are."""
        return json.dumps({"put_at": self.put_at}).encode() + b"\n" + self.data

    @classmethod
    def decode(cls, key: str, stored: Stored) -> Self:
        """The item that ``stored`` is. Raises `BackendError` for something else."""
        try:
            head, _, data = stored.data.partition(b"\n")
            return cls(float(json.loads(head)["put_at"]), data)
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(key, error) from None


class Record:
    """The base of what is stored as a JSON object with the fields of a dataclass."""

    def encode(self) -> bytes:
        """What is stored."""
        return json.dumps(
            {one.name: getattr(self, one.name) for one in fields(cast(Any, self))}
        ).encode()

    @classmethod
    def decode(cls, key: str, stored: Stored) -> Self:
        """The record that ``stored`` is. Raises `BackendError` for something else."""
        found = _object(key, stored)
        try:
            return cls(
                **{
                    one.name: _TYPES[str(one.type)](found[one.name])
                    for one in fields(cast(Any, cls))
                }
            )
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(key, error) from None


@dataclass(frozen=True)
class Claim(Record):
    """Who is at work on an item: void as soon as that contender has left its queue."""

    key: str
    order: int
    token: int
    since: float

    @classmethod
    def of(cls, worker: Contender, since: float) -> Self:
        """The claim of ``worker``."""
        return cls(worker.key, worker.order, worker.token or 0, since)

    def is_of(self, contender: Contender) -> bool:
        """Whether it is the claim of ``contender``."""
        return (self.key, self.order) == (contender.key, contender.order)

    def stands_in(self, workers: Snapshot) -> bool:
        """Whether its worker is among ``workers``, all of whom are listed."""
        return any(map(self.is_of, workers.contenders))


@dataclass(frozen=True)
class Again(Record):
    """An item that was taken before, or has waited for its time.

    Attributes:
        due: when it may be taken, in seconds since 1970; 0 for at once.
        token: that of the claim before; 0 for none.
    """

    due: float
    token: int = 0


@dataclass(frozen=True)
class Dead(Record):
    """Why, and since when, nobody takes an item any more."""

    at: float
    reason: str


def attempts(listing: Listing) -> dict[Attempt, tuple[str, Stored]]:
    """The attempts in a folder, by what their keys are called, in the order of their numbers."""
    found = {}
    for key, stored in listing.values.items():
        try:
            found[Attempt.parse(key.rpartition("/")[2])] = key, stored
        except ValueError as error:
            raise _damaged(key, error) from None
    return dict(sorted(found.items()))


def parsed_id(text: object) -> ItemId:
    """The id that an application gives. Raises ValueError, or TypeError for no text."""
    if not isinstance(text, str):
        raise TypeError(f"an item's id is a str, not {type(text).__name__}")
    return ItemId.parse(text)


def _encoded(**found: Any) -> bytes:
    return json.dumps({"layout": LAYOUT, **found}).encode()


def _read(
    layout: Layout, key: str, listing: Listing, missing: Mapping[str, Any]
) -> Mapping[str, Any]:
    if (stored := listing.values.get(key)) is None:
        return missing
    found = _object(key, stored)
    if (number := found.get("layout")) != LAYOUT:
        wanted = f"a work queue of layout {LAYOUT}"
        raise QueueMismatch(layout.name, wanted, f"one of layout {number}", key)
    return found


def _object(key: str, stored: Stored) -> dict[str, Any]:
    try:
        found = json.loads(stored.data)
    except ValueError as error:
        raise _damaged(key, error) from None
    if not isinstance(found, dict):
        raise _damaged(key, "no object")
    return found


def _damaged(key: str, problem: object) -> BackendError:
    return BackendError("the work queue", f"{key} holds what coordlock has not written: {problem}")
