"""Contenders as keys: ``<root>/<escaped name>/<marker>-<guid>``, and what a key shows.

The slash that begins the root may be left out.

This is the layout of Go's ``concurrency.Mutex``: every key under the prefix of a queue is a
contender, and creation revisions order them. So ``etcdctl lock`` and Go services on the same prefix
exclude coordlock and are excluded by it; their keys count as exclusive locks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Self

from coordlock.errors import SessionLost
from coordlock.model.claim import AnyClaim, Convertible, Mode, parse_marker
from coordlock.model.contender import Contender, Entry, Owner, Snapshot
from coordlock.model.names import escape, unescape
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.own_keys import OwnKeys

__all__ = [
    "Layout",
    "check_is_of",
    "enqueued",
    "key_of",
    "prefix_end",
    "refused",
    "session",
    "snapshot",
]

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
    #: The keys that differ from what their entries' ids say.
    own: OwnKeys = field(default_factory=OwnKeys, compare=False)

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

    def queue_of(self, key: bytes) -> bytes:
        """The prefix of the queue that contains ``key``."""
        end = key.find(b"/", len(self.prefix))
        return key[: end + 1]

    def key(self, entry: Entry) -> bytes:
        """The key of ``entry``'s contender, the same for every attempt to create it."""
        return self.own.key(entry, self.beginning(entry))

    def adding(self, entry: Entry) -> None:
        """A request may add ``entry``."""
        self.own.adding(entry, self.beginning(entry))

    def beginning(self, entry: Entry) -> bytes:
        """What the keys of contenders with the claim of ``entry`` start with, in its queue."""
        return self.queue(entry.queue) + entry.claim.marker.encode() + b"-"

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

    def range_of(self, where: str) -> tuple[bytes, bytes]:
        """The key ``where``, or all keys in that folder; the end is empty for a key."""
        key = self.at(where)
        # A zero byte stands for the first of all keys.
        return key or b"\0", prefix_end(key) if where.endswith("/") else b""

    def is_at(self, where: str, key: bytes) -> bool:
        """Whether ``key`` is ``where``, or lies in that folder and not deeper."""
        below = self.path(key).removeprefix(where)
        return "/" not in below and bool(below) is where.endswith("/")

    @property
    def has_slash(self) -> bool:
        """Whether keys begin with a slash, as paths do."""
        return self.prefix.startswith(b"/")

    def contender(self, queue: str, key: bytes, value: bytes = b"") -> tuple[str, AnyClaim]:
        """The contender's id and claim, from its ``key``, and its ``value`` if it is convertible.

        Those of other programs count as exclusive.
        """
        rest = key.removeprefix(self.queue(queue)).decode("utf-8", "backslashreplace")
        if match := _OWN.fullmatch(rest):
            is_convertible = match[1] == Convertible.marker
            published = Owner.published(value) if is_convertible else None
            return match[2], parse_marker(match[1], published)
        return rest, Mode.EX


def key_of(contender: Contender) -> bytes:
    """The key of ``contender``, of whichever program it is."""
    return contender.key.encode("utf-8", "surrogateescape")


def snapshot(
    layout: Layout,
    queue: str,
    kvs: Iterable[pb.KeyValue],
    revision: int,
    omitted: int = 0,
    *,
    owners: bool = False,
) -> Snapshot:
    """The queue in ``kvs``; with the ``owners`` of its contenders."""
    contenders = [_contender(layout, queue, kv, owners=owners) for kv in kvs]
    contenders.sort(key=lambda contender: contender.order)
    return Snapshot(queue, tuple(contenders), revision, omitted)


def enqueued(layout: Layout, entry: Entry, found: pb.RangeResponse, revision: int) -> Snapshot:
    """The queue's end in ``found``, just after ``entry`` was put there: it is the newest.

    Of that one, nothing is parsed: the entry has it. What was read beyond the claim's window is
    kept only if it is all: thousands of waiters are to be small.
    """
    mine, *before = found.kvs
    if found.more:
        del before[entry.claim.window :]
    order = mine.create_revision
    layout.own.added(entry, order)
    me = Contender(
        id=entry.id,
        key=mine.key.decode(),
        claim=entry.claim,
        order=order,
        token=order,
        session=session(mine.lease),
        owner=entry.owner,
        value=entry.value,
        version=1,
    )
    contenders = (*(_contender(layout, entry.queue, kv) for kv in reversed(before)), me)
    return Snapshot(entry.queue, contenders, revision, found.count - len(contenders))


def check_is_of(entry: Entry, kv: pb.KeyValue, lease: int) -> None:
    """Raise `SessionLost` if another process has made ``kv`` in this session.

    Copies of a virtual machine have one session, and the same keys that may be used again.
    """
    if entry.publishes or kv.lease != lease:
        return
    if kv.value != entry.owner.encode(entry.value):
        raise SessionLost(SERVICE, "another process uses it, as a copy of this machine would")


@lru_cache(maxsize=256)  # kept once for all contenders of a client
def session(lease: int) -> str:
    """The id of the session of a lease; empty for no lease, which is 0."""
    return f"{lease:016x}" if lease else ""


def _contender(layout: Layout, queue: str, kv: pb.KeyValue, *, owners: bool = False) -> Contender:
    id, claim = layout.contender(queue, kv.key, kv.value)
    order = kv.create_revision
    owners = owners or isinstance(claim, Convertible)
    return Contender(
        id=layout.own.id(kv.key, order) or id,
        key=kv.key.decode("utf-8", "surrogateescape"),
        claim=claim,
        order=order,
        token=order,
        session=session(kv.lease),
        owner=Owner.decode(kv.value) if owners else None,
        value=Owner.published(kv.value) if owners else None,
        version=kv.version,
    )


def refused(layout: Layout, queue: str, reply: pb.TxnResponse) -> Snapshot:
    """The queue's nearest that may be in the way of what `enqueue_unless_blocked` did not add."""
    _, count, *ranges = (one.response_range for one in reply.responses)
    kvs = [kv for one in ranges for kv in one.kvs]
    return snapshot(layout, queue, kvs, reply.header.revision, count.count - len(kvs))
