"""What the records of a work queue say, and how they are written down.

See `coordlock.model.record`. The tail alone is rewritten, so there unknown fields are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self, TypeVar

from coordlock.backend.data import Listing, Operation, Put, VersionedValue
from coordlock.errors import BackendError, NameConflict
from coordlock.model.contender import Contender
from coordlock.model.record import NewerFormat, decode, encode
from coordlock.work.layout import Entry, Layout, creating, milliseconds

__all__ = [
    "Claim",
    "Content",
    "Ended",
    "Tail",
    "entry_in",
    "mark_written",
    "reason_in",
]

T = TypeVar("T")

#: Of how many producers the tail has the last put.
_PRODUCERS: Final = 64


@dataclass(frozen=True, slots=True)
class Tail:
    """Where items are put.

    Attributes:
        next: the number of the next item.
        puts: the first number of each producer's last put, by the producer's id. The latest is at
            the end.
        found: all fields that were stored.
        version: that of its key.
    """

    next: int = 1
    puts: Mapping[str, int] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0

    def after(self, producer: str, items: int) -> Tail:
        """The tail after ``producer`` has put ``items`` more."""
        others = [put for put in self.puts.items() if put[0] != producer]
        puts = dict([*others, (producer, self.next)][-_PRODUCERS:])
        return Tail(self.next + items, puts, self.found, self.version + 1)

    def first_of(self, producer: str, since: int) -> int | None:
        """The first number of a put of ``producer``; None where it was not made.

        ``since`` was the next number when the put began. Raises LookupError where others may have
        pushed the producer out, so that nobody can tell.
        """
        first = self.puts.get(producer)
        if first is None and len(self.puts) >= _PRODUCERS and min(self.puts.values()) >= since:
            raise LookupError(f"{_PRODUCERS} other producers have put since")
        return None if first is None or first < since else first

    def encode(self) -> bytes:
        """What is stored."""
        return encode({"next": self.next, "puts": self.puts}, self.found)

    @classmethod
    def decode(cls, layout: Layout, stored: VersionedValue) -> Tail:
        """The tail that ``stored`` is. Raises `BackendError` for something else."""

        def read(found: Mapping[str, Any]) -> Tail:
            puts = {str(put): int(first) for put, first in found["puts"].items()}
            return cls(int(found["next"]), puts, found, stored.version)

        return _decoded(layout.tail, stored.data, read, layout.name)


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


class Claim(NamedTuple):
    """The contender of the worker that has an item."""

    worker: str
    order: int

    @classmethod
    def of(cls, contender: Contender) -> Self:
        """That of ``contender``."""
        return cls(contender.key, contender.order)

    def encode(self) -> bytes:
        """What is stored."""
        return encode(self._asdict())

    @classmethod
    def decode(cls, key: str, stored: VersionedValue) -> Self:
        """The claim that ``stored`` is. Raises `BackendError` for something else."""
        return _decoded(
            key, stored.data, lambda found: cls(str(found["worker"]), int(found["order"]))
        )


class Ended(NamedTuple):
    """An item whose claim has ended: its entry, and why it is dead, or ""."""

    entry: Entry
    reason: str

    @classmethod
    def of(
        cls,
        claim: Entry,
        max_failures: int,
        *,
        due: int = 0,
        delivered: bool = True,
        failed: bool = False,
        reason: str = "",
    ) -> Self:
        """What is kept once ``claim`` has ended, ``delivered`` or not, and ``failed`` or not.

        It is ``due`` then, or after ``max_failures`` dead now, for that ``reason``.
        """
        deliveries, failures = claim.deliveries + delivered, claim.failures + failed
        entry = claim._replace(at=due, deliveries=deliveries, failures=failures)
        if failures < max_failures:
            return cls(entry, "")
        return cls(entry._replace(at=milliseconds()), reason or f"failed {failures} times")

    def keeping(self, layout: Layout) -> tuple[Operation, ...]:
        """The operations that make the entry."""
        if self.reason:
            return creating(f"{layout.dead}{self.entry}", encode({"reason": self.reason}))
        return *creating(f"{layout.ready}{self.entry}", b""), mark_written(layout)


def entry_in(key: str) -> Entry:
    """The entry that ``key`` names. Raises `BackendError` for another program's key."""
    try:
        return Entry.parse(key.rpartition("/")[2])
    except (ValueError, TypeError) as error:
        raise _damaged(key, error) from None


def reason_in(key: str, stored: VersionedValue) -> str:
    """Why the dead item at ``key`` is dead."""
    return _decoded(key, stored.data, lambda found: str(found["reason"]))


def mark_written(layout: Layout) -> Put:
    """What lists the queue, and is news for its consumers."""
    return Put(layout.mark, encode({}))


def check_mark(layout: Layout, listing: Listing) -> None:
    """Raise `NameConflict` where ``listing``, of the queue's own key, is of a later release."""
    if (stored := listing.values.get(layout.mark)) is not None:
        _decoded(layout.mark, stored.data, dict, layout.name)


def _decoded(key: str, data: bytes, make: Callable[[Mapping[str, Any]], T], queue: str = "") -> T:
    """What ``make`` makes of the record at ``key``."""
    try:
        return make(decode(data))
    except NewerFormat:
        wanted, found = (f"a work queue of {which} release" for which in ("this", "another"))
        raise NameConflict(queue or key, wanted, found, "") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(key, error) from None


def _damaged(key: str, error: object) -> BackendError:
    problem = f"{key!r} is not as coordlock writes it ({error}): another program has written there"
    return BackendError("work queue", problem)
