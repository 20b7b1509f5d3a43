"""The queue as data: contenders, who owns them, and snapshots of them in order."""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from coordlock.model.claim import AnyClaim, Convertible

__all__ = [
    "Announcement",
    "Contender",
    "Entry",
    "Owner",
    "Snapshot",
    "are_same",
    "find_same",
    "is_known",
]

#: The format of what contenders say of their owners, as in `coordlock.model.record`.
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Owner:
    """The client that enqueued a contender, by its own account. For people, not for decisions.

    ``since`` is the owner's wall clock at enqueueing, in seconds since the epoch. One without a
    host is not stored: what its contender publishes stands alone, as other programs write it and
    read it, and is its label.
    """

    host: str
    pid: int
    label: str = ""
    since: float = 0.0

    def encode(self, value: bytes = b"") -> bytes:
        """The bytes that a backend stores with the contender, which publishes ``value``."""
        if not self.host:
            return value
        fields: dict[str, object] = {"format": _FORMAT, "host": self.host, "pid": self.pid}
        fields |= {"label": self.label, "since": self.since}
        if value:
            fields["value"] = b2a_base64(value, newline=False).decode()
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes) -> Owner | None:
        """The owner in ``data``; other programs' data becomes the label; None when empty."""
        if (stored := _stored(data)) is not None:
            return stored[0]
        label = data.decode("utf-8", "replace").strip()
        return cls(host="", pid=0, label=label) if label else None

    @staticmethod
    def published(data: bytes) -> bytes:
        """The value in ``data``, which `encode` has given; other programs' data is one.

        Nothing, where a newer release has written it in a format that this one does not know.
        """
        if (stored := _stored(data)) is None:
            return data
        fields = stored[1]
        try:
            known = fields.get("format", _FORMAT) <= _FORMAT
            return a2b_base64(fields["value"], strict_mode=True) if known else b""
        except (ValueError, TypeError, KeyError):
            return b""

    def __str__(self) -> str:
        who = f"{self.host}:{self.pid}" if self.host else ""
        return " ".join(part for part in (who, self.label) if part)


def _stored(data: bytes) -> tuple[Owner, dict[str, Any]] | None:
    """The owner in ``data`` and all its fields; None for the data of other programs."""
    try:
        fields = json.loads(data)
        host, label = str(fields["host"]), str(fields["label"])
        return Owner(host, int(fields["pid"]), label, float(fields["since"])), fields
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class Entry:
    """What a client asks a backend to enqueue, identified before anything is sent.

    ``id`` is a GUID (32 hexadecimal digits), by which a create whose reply was lost is found again.
    No second entry ever has it. ``value`` is what the contender publishes, where
    the service has the capability ``publishing``, and b"" elsewhere. Unless it ``publishes``,
    its value never changes.
    """

    queue: str
    id: str
    claim: AnyClaim
    owner: Owner
    value: bytes = b""
    publishes: bool = True


class Announcement(NamedTuple):
    """What a contender publishes from the beginning.

    A ``raw`` value is stored without its owner, for programs that read the key directly. The
    contender's id begins with ``identity``, hexadecimal digits by which others recognise it in a
    later session.
    """

    value: bytes
    raw: bool = False
    identity: str = ""


# Not frozen: to make a frozen one takes three times as long, and a list has thousands.
@dataclass(slots=True)
class Contender:
    """One entry of a queue, as the service shows it.

    Attributes:
        id: the GUID of the entry, for the client that made it and where it publishes a value; of
            others, whatever is unique in the queue at one moment.
        key: the backend's full name for it (znode path, etcd key, file).
        claim: the mode or permit that it asks for.
        order: its place; contenders are served in ascending order. Unique in the queue.
        token: the fencing token, 1 to 2**63 - 1, or None where a snapshot doesn't carry it.
        session: the id of the session that keeps it alive, or "" where not known.
        owner: the client that enqueued it; None where not known or not asked for.
        value: what it publishes, b"" for nothing, and what another program keeps with one of its
            contenders; None where a snapshot doesn't carry it. A
            contender stays the same when it publishes another, so neither this nor ``version``
            counts in a comparison.
        version: how often ``value`` was set, 1 from the beginning; 0 where a snapshot doesn't
            carry it.
    """

    id: Final[str]
    key: Final[str]
    claim: Final[AnyClaim]
    order: Final[int]
    token: Final[int | None] = None
    session: Final[str] = ""
    owner: Final[Owner | None] = None
    value: Final[bytes | None] = field(default=None, compare=False)
    version: Final[int] = field(default=0, compare=False)

    def __hash__(self) -> int:
        # Of one field that tells them apart: a client that waits looks them up again and again.
        return hash(self.key)

    @property
    def place(self) -> str:
        """Names it for all clients, and no other contender of its queue ever.

        Its client knows it by ``id``; others may see another one, and one that had it before.
        """
        return f"{self.key}@{self.order}"

    @property
    def described(self) -> Owner | None:
        """Who it says it is; where it says nothing but what it publishes, that as a label."""
        if self.value and (self.owner is None or not self.owner.host):
            return Owner.decode(self.value)
        return self.owner

    def __str__(self) -> str:
        token = "" if self.token is None else f" (token {self.token})"
        return f"{self.described or self.key}{token}"


@dataclass(slots=True)
class Snapshot:
    """A queue at one moment, in ascending order.

    Attributes:
        queue: the lock's name.
        contenders: the contenders seen, in ascending order.
        revision: the service's state that this shows; watches start behind it.
        omitted: how many contenders stand before the first of ``contenders`` without being listed;
            0 if they are known not to be in the way of the last of ``contenders``.
    """

    queue: Final[str]
    contenders: Final[tuple[Contender, ...]]
    revision: Final[int] = 0
    omitted: Final[int] = 0

    def find(self, id: str) -> Contender | None:
        """The contender of the entry ``id``, or None when it is not in the queue."""
        for contender in reversed(self.contenders):  # a client looks for its own, which comes last
            if contender.id == id:
                return contender
        return None

    def before(self, contender: Contender) -> tuple[Contender, ...]:
        """The listed contenders that stand before ``contender``."""
        if self.contenders and contender.order == self.contenders[-1].order:
            return self.contenders[:-1]  # as in a queue that was read up to it
        return tuple([other for other in self.contenders if other.order < contender.order])

    def without(self, departed: Iterable[Contender]) -> Snapshot:
        """This snapshot less what has departed since: a superset of the queue's earlier part.

        No contender can enter a queue before one that is already in it, so what remains here
        bounds what remains there.
        """
        gone = {contender.key for contender in departed}
        left = tuple([contender for contender in self.contenders if contender.key not in gone])
        return Snapshot(self.queue, left, self.revision, self.omitted)

    def behind(self, contender: Contender) -> Snapshot:
        """This snapshot when ``contender`` and all before it do not matter any more."""
        left = tuple([other for other in self.contenders if other.order > contender.order])
        return Snapshot(self.queue, left, self.revision)


def is_known(contender: Contender) -> bool:
    """Whether it is known what ``contender`` claims: the value of a convertible one shows it."""
    return contender.value is not None or not isinstance(contender.claim, Convertible)


def are_same(one: Contender, other: Contender) -> bool:
    """Whether both stand for one entry of a queue, whatever else is known of it."""
    return one.key == other.key and one.order == other.order


def find_same(one: Contender, contenders: Iterable[Contender]) -> Contender | None:
    """The one of ``contenders`` that stands for the same entry as ``one``."""
    return next((other for other in contenders if are_same(one, other)), None)
