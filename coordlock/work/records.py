"""What the records of a work queue say, and how they are written down.

See `coordlock.model.record`. The tail alone is rewritten, so there unknown fields are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from typing import Any, Final, NamedTuple, Self, TypeVar

from coordlock.backend.data import Listing, Operation, Put, VersionedValue
from coordlock.errors import BackendError, NameConflict
from coordlock.model.contender import Contender
from coordlock.model.record import NewerFormat, decode, encode
from coordlock.work.layout import LANES, NEVER, Layout, Serial

__all__ = [
    "Content",
    "Lane",
    "Limits",
    "Made",
    "Record",
    "State",
    "Tail",
    "check_mark",
    "marked",
    "serials",
]

T = TypeVar("T")

#: Of how many producers the tail tells the last put.
_PRODUCERS: Final = 64


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane's next number, and the version of its key at which that was read; 0 without a key."""

    lane: int
    number: int
    version: int

    @classmethod
    def new(cls, lane: int) -> Self:
        """A lane from which nothing was claimed: items are counted from 1."""
        return cls(lane, lane or LANES, 0)

    @property
    def after(self) -> Lane:
        """The lane once its next number was claimed."""
        return Lane(self.lane, self.number + LANES, self.version + 1)

    def waiting(self, tail: int) -> int:
        """How many of its numbers, up to the next item's at the ``tail``, are not claimed."""
        return max(0, -(-(tail - self.number) // LANES))

    def encode(self) -> bytes:
        """What is stored."""
        return encode({"next": self.number})


class Made(NamedTuple):
    """A producer's last put: which it was, and the first numbers of its items."""

    operation: int
    next: int
    delayed: int


@dataclass(frozen=True, slots=True)
class Tail:
    """Where items are put.

    Attributes:
        next: the number of the next item.
        delayed: the number of the next item that is put with a delay.
        last: what each of the last producers put last, the latest one at the end.
        is_listed: whether the mark of the queue is there. The next put makes it where it is not.
        others: the fields that a later release has added.
    """

    next: int = 1
    delayed: int = 1
    last: Mapping[str, Made] = field(default_factory=dict)
    is_listed: bool = True
    others: Mapping[str, Any] = field(default_factory=dict)

    def after(self, producer: str, operation: int, items: int, delayed: int) -> Tail:
        """The tail after ``producer`` has put so many items, and so many with a delay."""
        last = {one: made for one, made in self.last.items() if one != producer}
        while len(last) >= _PRODUCERS:
            del last[next(iter(last))]
        last[producer] = Made(operation, self.next, self.delayed)
        return Tail(self.next + items, self.delayed + delayed, last, others=self.others)

    def made(self, producer: str, operation: int, changes: int) -> Made | None:
        """What ``operation`` of ``producer`` has put; None where it was not made.

        ``changes`` is how often the tail was changed since the first attempt. Raises LookupError
        where others may have pushed the producer out, so that nobody can tell.
        """
        made = self.last.get(producer)
        if made is not None and made.operation == operation:
            return made
        if made is None and changes >= _PRODUCERS:
            raise LookupError(f"others have put {changes} times since")
        return None

    def encode(self) -> bytes:
        """What is stored."""
        unlisted: dict[str, Any] = {} if self.is_listed else {"listed": False}
        own = {"next": self.next, "delayed": self.delayed, "last": self.last, **unlisted}
        return encode(own, self.others)

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> Self:
        """The tail with what was ``found``."""
        last = {str(one): Made(*map(int, made)) for one, made in found["last"].items()}
        is_listed = found.get("listed") is not False
        own = {"format", "next", "delayed", "last", "listed"}
        others = {name: value for name, value in found.items() if name not in own}
        return cls(int(found["next"]), int(found["delayed"]), last, is_listed, others)


@dataclass(frozen=True, slots=True)
class State:
    """What changes in a queue, at one moment.

    Attributes:
        tail: where items are put, and the version of its key.
        lanes: the next number of each lane.
        changes: the version of that key. It grows in the step that adds an item to those that
            wait. None of these keys is ever deleted.
    """

    tail: Tail
    tail_version: int
    lanes: tuple[Lane, ...]
    changes: int

    @classmethod
    def read(cls, layout: Layout, values: Mapping[str, VersionedValue]) -> Self:
        """What its keys hold. Raises `NameConflict`."""
        tail, version = Tail(), 0
        if (stored := values.get(layout.tail)) is not None:
            version = stored.version
            tail = _decoded(layout.tail, stored.data, Tail.decode, layout.name)
        lanes = []
        for lane, key in enumerate(layout.lanes):
            stored = values.get(key)
            if stored is None:
                lanes.append(Lane.new(lane))
            else:
                number = _decoded(key, stored.data, lambda found: int(found["next"]), layout.name)
                lanes.append(Lane(lane, number, stored.version))
        changes = values.get(layout.changes)
        return cls(tail, version, tuple(lanes), 0 if changes is None else changes.version)

    @property
    def waiting(self) -> int:
        """How many new items nobody has claimed."""
        return sum(lane.waiting(self.tail.next) for lane in self.lanes)


@dataclass(frozen=True, slots=True)
class Content:
    """What was put, and when, by the clock of its producer."""

    put_at: float
    data: bytes

    def encode(self) -> bytes:
        """What is stored: a line of JSON, then the data."""
        return encode({"put_at": self.put_at}) + b"\n" + self.data

    @classmethod
    def decode(cls, key: str, stored: VersionedValue) -> Self:
        """The item that ``stored`` is. Raises `BackendError` for something else."""
        head, _, data = stored.data.partition(b"\n")
        return _decoded(key, head, lambda found: cls(float(found["put_at"]), data))


@dataclass(frozen=True, slots=True)
class Limits:
    """When an item counts as dead.

    Attributes:
        failures: after so many.
        deliveries: after it was handed to a worker so often; None for no limit.
    """

    failures: int
    deliveries: int | None = None

    def reason(self, record: Record) -> str:
        """Why an item with this ``record`` is dead; "" if it is not."""
        if record.failures >= self.failures:
            return f"failed {record.failures} times"
        if self.deliveries is not None and record.deliveries >= self.deliveries:
            return f"delivered {record.deliveries} times"
        return ""


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of an item that was claimed or delayed.

    Attributes:
        at: from when on it may be claimed, 0 for at once; since when a worker has it; or when it
            died. In seconds since 1970.
        deliveries, failures: how often it was handed to a worker, and how often that has failed. In
            a claim: before that.
        token: the fencing token of its last claim; 0 for none.
        worker, order: the contender of the worker that has it.
        reason: why it is dead; "" for others.
    """

    at: float = 0.0
    deliveries: int = 0
    failures: int = 0
    token: int = 0
    worker: str = ""
    order: int = 0
    reason: str = ""

    def is_of(self, contender: Contender) -> bool:
        """Whether it is the claim of ``contender``."""
        return (self.worker, self.order) == (contender.key, contender.order)

    def after(
        self,
        limits: Limits,
        *,
        due: float = 0.0,
        delivered: bool = True,
        failed: bool = False,
        reason: str = "",
    ) -> Record:
        """What is kept once this claim has ended, ``delivered`` or not, and ``failed`` or not.

        It is ``due`` then, or dead now, for that ``reason``, where ``limits`` say so.
        """
        record = Record(due, self.deliveries + delivered, self.failures + failed, self.token)
        if dead := limits.reason(record):
            return replace(record, at=time.time(), reason=reason or dead)
        return record

    def keeping(self, layout: Layout, item: Serial) -> tuple[Operation, ...]:
        """The operations that keep it, of an item without a claim."""
        due = NEVER if self.reason else self.at
        return *layout.kept.adding(item, due, self.encode()), Put(layout.changes, b"")

    def encode(self) -> bytes:
        """What is stored."""
        return encode({name: value for name, value in asdict(self).items() if value})

    @classmethod
    def decode(cls, key: str, stored: VersionedValue) -> Record:
        """The record that ``stored`` is. Raises `BackendError` for something else."""
        zeros: Mapping[str, Any] = {field.name: field.default for field in fields(cls)}

        def read(found: Mapping[str, Any]) -> Record:
            return cls(**{name: type(zero)(found.get(name, zero)) for name, zero in zeros.items()})

        return _decoded(key, stored.data, read)


def serials(*listings: Listing) -> dict[Serial, tuple[str, VersionedValue]]:
    """What folders hold, by what its keys are called, in the order of their numbers."""
    found = {}
    for key, stored in chain.from_iterable(one.values.items() for one in listings):
        try:
            found[Serial.parse(key.rpartition("/")[2])] = key, stored
        except ValueError as error:
            raise _damaged(key, error) from None
    return dict(sorted(found.items()))


def marked() -> bytes:
    """What is stored at the queue's own key."""
    return encode({"lanes": LANES})


def check_mark(layout: Layout, listing: Listing) -> None:
    """Raise `NameConflict` where ``listing``, of the queue's own key, is of a later release."""
    if (stored := listing.values.get(layout.mark)) is not None:
        _decoded(layout.mark, stored.data, dict, layout.name)


def _decoded(key: str, data: bytes, make: Callable[[Mapping[str, Any]], T], queue: str = "") -> T:
    """What ``make`` makes of the record at ``key``."""
    try:
        return make(decode(data))
    except NewerFormat:
        raise _of_another_release(queue or key) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(key, error) from None


def _of_another_release(name: str) -> NameConflict:
    wanted, found = (f"a work queue of {which} release" for which in ("this", "another"))
    return NameConflict(name, wanted, found, "")


def _damaged(key: str, error: object) -> BackendError:
    problem = f"{key!r} is not as coordlock writes it ({error}): another program has written there"
    return BackendError("work queue", problem)
