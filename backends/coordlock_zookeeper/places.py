"""What is observed, data or a queue: its complete state, put together from answers. No I/O.

ZooKeeper reads one node at a time. So a place is read in rounds: a list of names, what each of them
holds, and then again what has changed meanwhile.

Why a view that is put together from answers is a state. Each answer is known to be true for a
period, from one transaction to another:

* Since the transaction that changed the node last, which its stat names: ``mzxid`` for the data,
  ``pzxid`` for the list of children. Deleting a node and making it again is such a change.
* Until the newest answer before the event by which its watch tells of a change. While there was no
  event, until the newest answer of all: a server sends the event before any answer that shows what
  comes after the change, and the head of each answer names the last transaction that it shows.

At a transaction that lies in the periods of all answers, all of them were true together. So the
service had that state, by the server's account of it, which has one order. A transaction that
writes two nodes never shows in part: the old version of either ends before it, the new begins with
it.

That needs the answers of one connection, and answers and events in the order in which they came.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from kazoo.protocol.states import EventType

from coordlock.backend import Listing, Stored
from coordlock.model.contender import Contender, Snapshot
from coordlock_zookeeper import nodes
from coordlock_zookeeper.contenders import Described
from coordlock_zookeeper.transactions import stored

__all__ = ["FolderPlace", "KeyPlace", "Need", "Place", "QueuePlace"]

State = TypeVar("State", Snapshot, Listing)
Part = TypeVar("Part")
Told = TypeVar("Told")

#: The server's own, at the top.
_SYSTEM: Final = "zookeeper"


class Need(NamedTuple):
    """A request that a place needs: for the data of a node, its children, or whether it is there.

    The last is for a node that is not there: a watch on anything else tells nothing of its coming.
    """

    kind: Literal["data", "children", "existence"]
    path: str


class _Known(Generic[Told]):
    """What an answer has told, and the transactions since and until which it is known to be true.

    ``until`` is None while its watch has told of no change: until the newest answer.
    """

    __slots__ = ("since", "told", "until")

    def __init__(self, told: Told, since: int, until: int | None = None) -> None:
        self.told: Final = told
        self.since: Final = since
        self.until = until


class Place(ABC, Generic[State]):
    """A node, and perhaps its children, as far as answers have told them."""

    _kind: Literal["data", "children"]

    def __init__(self, path: str) -> None:
        #: The node's.
        self.path: Final = path
        self._under_way: set[Need] = set()
        #: The transactions that the newest answer shows, and the newest state that was proven.
        self._newest = self._proven = 0
        #: What is known of the node itself.
        self._own: _Known[Any] | None = None
        #: What is to be asked of the node itself; None while no change of it is known.
        self._lacking: Literal["data", "children", "existence"] | None = self._kind

    @property
    @abstractmethod
    def name(self) -> tuple[str, str]:
        """What tells places apart."""

    def restart(self) -> None:
        """Nothing that was told is known to be true any more, and no more answers come."""
        self._under_way.clear()
        self._newest = self._proven = 0
        self._own = None
        self._lacking = self._kind

    def needs(self) -> list[Need]:
        """The requests of the next round, which count as sent; none while a round is under way."""
        if self._under_way:
            return []
        needs = self._needs()
        self._under_way.update(needs)
        return needs

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to read: all that is known is true until the newest answer."""
        return not self._under_way and not self._needs()

    def take(self, need: Need, found: Any, zxid: int) -> None:
        """Take the answer, None where there is no such node; it shows transaction ``zxid``."""
        self._under_way.discard(need)
        self._newest = zxid
        if need.path == self.path:
            self._take_own(need, found)
        else:
            self._take_part(need.path.rpartition("/")[2], found)

    def fired(self, kind: str, path: str) -> None:
        """A watch has told that ``path`` has changed in this way: see kazoo's `EventType`."""
        ignored = EventType.CHANGED if self._kind == "children" else EventType.CHILD
        if path == self.path and kind != ignored:
            self._lacking = self._kind
            self._close(self._own)

    def advance(self) -> State | None:
        """The newest state that all answers prove; None if it is none, or not newer than before.

        To be asked after each answer: between two rounds there may be one.
        """
        known = None if self._under_way else self._known()
        if known is None:
            return None
        zxid = min(self._newest if one.until is None else one.until for one in known)
        if zxid <= self._proven or any(one.since > zxid for one in known):
            return None
        self._proven = zxid
        self._was_proven()
        return self._state(zxid)

    def _close(self, known: _Known[Any] | None) -> None:
        """An event has told that it has changed."""
        if known is not None and known.until is None:
            known.until = self._newest

    def _take_own(self, need: Need, found: Any) -> None:
        """Take what the node itself holds, None where it is not there."""
        if found is None:
            # Only a question for its existence leaves a watch then.
            is_watched = need.kind == "existence"
            self._lacking = None if is_watched else "existence"
            until = None if is_watched else self._newest
            self._own = _Known(self._told(None), self._newest, until)
        elif need.kind == "existence":
            self._lacking = self._kind
        else:
            self._lacking = None
            self._own = _Known(self._told(found), self._since(found[1]))

    def _take_part(self, name: str, found: Any) -> None:
        """Take what a child holds, None where it is not there."""
        raise NotImplementedError

    def _needs(self) -> list[Need]:
        return [Need(self._lacking, self.path)] if self._lacking else []

    def _known(self) -> Sequence[_Known[Any]] | None:
        """All that the state is made of; None while nothing is known of a part of it."""
        return None if self._own is None else [self._own]

    def _was_proven(self) -> None:
        """A state was proven, newer than any before."""

    @abstractmethod
    def _told(self, found: Any) -> Any:
        """What the node itself tells, None where it is not there."""

    @abstractmethod
    def _since(self, stat: Any) -> int:
        """The transaction since which the node tells that."""

    @abstractmethod
    def _state(self, zxid: int) -> State:
        """The state as of transaction ``zxid``."""


class KeyPlace(Place[Listing]):
    """One key of data."""

    _kind = "data"

    @property
    def name(self) -> tuple[str, str]:
        return "data", self.path

    def _told(self, found: Any) -> Stored | None:
        return None if found is None else stored(*found)

    def _since(self, stat: Any) -> int:
        return int(stat.mzxid)

    def _state(self, zxid: int) -> Listing:
        assert self._own is not None
        value = self._own.told
        return Listing({} if value is None else {self.path: value}, zxid)


class _Parent(Place[State], Generic[State, Part]):
    """A node whose children are what counts.

    Where parts change all the time, others change while those that have changed are read, and the
    round may prove no state. Then the next one reads all that have changed since the last state. So
    in the end a round reads everything that changes, at about one moment, and nothing else.
    """

    _kind = "children"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        #: What is known of children, by their names.
        self._parts: dict[str, _Known[Part]] = {}
        #: The children to read: not known yet, or changed since the state that was proven last.
        self._wanted: set[str] = set()

    def restart(self) -> None:
        super().restart()
        self._parts.clear()
        self._wanted.clear()

    def fired(self, kind: str, path: str) -> None:
        super().fired(kind, path)
        parent, _, name = path.rpartition("/")
        if (parent or "/") != self.path or name not in self._parts:
            return
        self._close(self._parts[name])
        if kind == EventType.DELETED:
            self._gone(name)
        else:
            self._wanted.add(name)

    def _was_proven(self) -> None:
        self._wanted = {one for one in self._wanted if self._parts[one].until is not None}

    def _needs(self) -> list[Need]:
        above = self.path.rstrip("/")
        parts = [Need("data", f"{above}/{name}") for name in self._wanted]
        return super()._needs() + parts

    def _known(self) -> Sequence[_Known[Any]] | None:
        if self._own is None:
            return None
        known: list[_Known[Any]] = [self._own]
        for name in self._own.told:
            if name not in self._parts:
                return None
            known.append(self._parts[name])
        return known

    def _take_own(self, need: Need, found: Any) -> None:
        super()._take_own(need, found)
        assert self._own is not None  # its existence is asked for after its children
        names, parts, wanted = self._own.told, self._parts, self._wanted
        self._parts = {one: parts[one] for one in names if one in parts}
        self._wanted = {
            one
            for one in names
            if one in wanted or one not in parts or parts[one].until is not None
        }

    def _take_part(self, name: str, found: Any) -> None:
        if found is not None:
            data, stat = found
            if name not in self._parts:
                self._wanted.discard(name)
            self._parts[name] = _Known(self._part(name, data, stat), int(stat.mzxid))
        elif name in self._wanted:
            self._gone(name)

    def _gone(self, name: str) -> None:
        # The watch on the list has told it as well, or tells it before any other answer comes.
        self._wanted.discard(name)
        self._lacking = self._kind

    def _told(self, found: Any) -> Sequence[str]:
        return self._selected(() if found is None else found[0])

    def _since(self, stat: Any) -> int:
        # Where the counter of a node's children has reached its end, `pzxid` misses those that are
        # created (`test_spent_counter`). But they are parts, and later ones than that.
        return int(stat.pzxid)

    @abstractmethod
    def _selected(self, children: Sequence[str]) -> Sequence[str]:
        """The names among those of all children that count, in their order."""

    @abstractmethod
    def _part(self, name: str, data: bytes | None, stat: Any) -> Part:
        """What a child is in the state."""

    def _children(self) -> list[tuple[str, Part]]:
        """The children that count, in their order, and what each is in the state."""
        assert self._own is not None
        return [(name, self._parts[name].told) for name in self._own.told]


class FolderPlace(_Parent[Listing, Stored | None]):
    """All keys of data that have one part more than ``folder``, which ends with a slash."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder.rstrip("/") or "/")
        self._folder: Final = folder

    @property
    def name(self) -> tuple[str, str]:
        return "data", self._folder

    def _state(self, zxid: int) -> Listing:
        children = self._children()
        values = {self._folder + name: value for name, value in children if value is not None}
        return Listing(values, zxid)

    def _selected(self, children: Sequence[str]) -> Sequence[str]:
        is_top = self.path == "/"
        return sorted(one for one in children if not (is_top and one == _SYSTEM))

    def _part(self, name: str, data: bytes | None, stat: Any) -> Stored | None:
        return stored(data, stat)


class QueuePlace(_Parent[Snapshot, Contender]):
    """A queue, whose node is ``path``.

    Args:
        described: makes contenders complete by what their nodes hold.
    """

    def __init__(self, queue: str, path: str, described: Described) -> None:
        super().__init__(path)
        self._queue: Final = queue
        self._described: Final = described

    @property
    def name(self) -> tuple[str, str]:
        return "queue", self._queue

    def _state(self, zxid: int) -> Snapshot:
        return Snapshot(self._queue, tuple(one for _, one in self._children()), zxid)

    def _selected(self, children: Sequence[str]) -> Sequence[str]:
        return [name for _, name in nodes.survey(children)]

    def _part(self, name: str, data: bytes | None, stat: Any) -> Contender:
        return self._described(nodes.contender(self.path, name), data, stat)
