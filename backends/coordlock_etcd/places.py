"""What is observed: the complete state of a queue or of data, from readings and events. No I/O.

etcd sends the events of a revision in one response, or in fragments, of which the last is marked.
So a state is complete when a response is.

A reading shows the place at one revision, and counts for all events up to that one. A reading that
is older than the events received is left out: it would undo them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

from coordlock.backend import Listing, VersionedValue
from coordlock.model.contender import Contender, Snapshot
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.keys import Layout, prefix_end, snapshot

__all__ = ["DataPlace", "Place", "QueuePlace"]

Part = TypeVar("Part")
State = TypeVar("State")


class Place(ABC, Generic[Part, State]):
    """What the client knows of a key, or of all keys that begin with a prefix."""

    def __init__(self, key: bytes, end: bytes = b"") -> None:
        #: A zero byte stands for the first of all keys.
        self.key: Final = key or b"\0"
        #: The end of the keys; empty where there is but one.
        self.end: Final = end
        #: The newest complete state.
        self.state: State | None = None
        #: The newest revision of which that is known to be the state.
        self._revision = 0
        #: The newest revision of which an event has come.
        self._heard = 0
        self._has_changed = False
        #: Those of the newest state in their order, and then those that have come since.
        self._parts: dict[str, Part] = {}
        self._have_come = False

    def reading(self) -> pb.RangeRequest:
        """The request that reads all of it at one revision, linearizable."""
        return pb.RangeRequest(key=self.key, range_end=self.end)

    def watching(self, id: int) -> pb.WatchRequest:
        """The request for all events since the last reading.

        It begins with the revision of that reading, whose events are known. If it began later, etcd
        would report no progress until another write.
        """
        return pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=self.key,
                range_end=self.end,
                start_revision=self._revision,
                watch_id=id,
                fragment=True,
            )
        )

    def parts(self, kvs: Iterable[pb.KeyValue]) -> dict[str, Part]:
        """What a reading has found, for `read`."""
        named = ((self._name(kv.key), kv) for kv in kvs)
        return {name: self._part(kv) for name, kv in named if name is not None}

    def read(self, parts: dict[str, Part], revision: int) -> bool:
        """Take ``parts`` for what is there at ``revision``, unless events have shown more.

        Whether the state is that of ``revision``, or a newer one.
        """
        if revision >= self._heard:
            self._parts, self._have_come = parts, True
            self._is_complete_at(revision)
        return self._revision >= revision

    def restart(self) -> None:
        """No more events come of what was watched; the next reading counts."""
        self._heard = self._revision
        self._has_changed = False

    def apply(self, response: pb.WatchResponse) -> bool:
        """Take the events of ``response``; whether there is another state now."""
        for event in response.events:
            kv = event.kv
            if kv.mod_revision > self._revision:
                self._heard = kv.mod_revision
                if (name := self._name(kv.key)) is not None:
                    self._has_changed = True
                    if event.type == pb.Event.DELETE:
                        self._parts.pop(name, None)
                    else:
                        self._have_come |= name not in self._parts
                        self._parts[name] = self._part(kv)
        if response.fragment or not response.events:
            return False
        has_changed = self._has_changed
        if has_changed:
            self._is_complete_at(self._heard)
        self._revision = self._heard
        return has_changed

    def _is_complete_at(self, revision: int) -> None:
        self._revision = self._heard = revision
        if self._have_come:
            self._parts = self._ordered(self._parts)
        self._has_changed = self._have_come = False
        self.state = self._state(self._parts, revision)

    @property
    @abstractmethod
    def name(self) -> tuple[str, str]:
        """The same for two places exactly if they are one."""

    @abstractmethod
    def _name(self, key: bytes) -> str | None:
        """What ``key`` is called in the state; None where it is no part of that."""

    @abstractmethod
    def _part(self, kv: pb.KeyValue) -> Part:
        """What ``kv`` is in the state."""

    @abstractmethod
    def _ordered(self, parts: dict[str, Part]) -> dict[str, Part]:
        """``parts``, of which the last have come just now, in their order."""

    @abstractmethod
    def _state(self, parts: Mapping[str, Part], revision: int) -> State:
        """The state that consists of ``parts``; it must not change with them."""


class QueuePlace(Place[Contender, Snapshot]):
    """A queue, in the order in which its contenders have come: each new one is the last."""

    def __init__(self, layout: Layout, queue: str) -> None:
        prefix = layout.queue(queue)
        super().__init__(prefix, prefix_end(prefix))
        self._layout: Final = layout
        self._queue: Final = queue

    @property
    def name(self) -> tuple[str, str]:
        return "queue", self._queue

    def reading(self) -> pb.RangeRequest:
        return requests.nearest(self.key, owners=True)

    def parts(self, kvs: Iterable[pb.KeyValue]) -> dict[str, Contender]:
        return super().parts(reversed(list(kvs)))  # the newest comes first

    def _name(self, key: bytes) -> str:
        return key.decode("utf-8", "surrogateescape")

    def _part(self, kv: pb.KeyValue) -> Contender:
        return snapshot(self._layout, self._queue, [kv], 0).contenders[0]

    def _ordered(self, parts: dict[str, Contender]) -> dict[str, Contender]:
        return parts

    def _state(self, parts: Mapping[str, Contender], revision: int) -> Snapshot:
        return Snapshot(self._queue, tuple(parts.values()), revision)


class DataPlace(Place[VersionedValue, Listing]):
    """A key of the data, or a folder: all keys that have one part more than its path."""

    def __init__(self, layout: Layout, where: str) -> None:
        key = layout.at(where)
        super().__init__(key, prefix_end(key) if where.endswith("/") else b"")
        self._layout: Final = layout
        self._where: Final = where

    @property
    def name(self) -> tuple[str, str]:
        return "data", self._where

    def _name(self, key: bytes) -> str | None:
        path = self._layout.path(key)
        below = path.removeprefix(self._where)
        # A key itself has nothing more, a folder's key has a part.
        is_here = "/" not in below and bool(below) is bool(self.end)
        return path if is_here else None

    def _part(self, kv: pb.KeyValue) -> VersionedValue:
        return VersionedValue(kv.value, kv.version)

    def _ordered(self, parts: dict[str, VersionedValue]) -> dict[str, VersionedValue]:
        return dict(sorted(parts.items()))

    def _state(self, parts: Mapping[str, VersionedValue], revision: int) -> Listing:
        return Listing(dict(parts), revision)
