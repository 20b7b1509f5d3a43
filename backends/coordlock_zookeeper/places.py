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

from coordlock.backend import Listing, VersionedValue
from coordlock.model.contender import Contender, Snapshot
from coordlock_zookeeper import nodes
from coordlock_zookeeper.data import stored

__all__ = ["FolderPlace", "KeyPlace", "Place", "QueuePlace", "Reading"]

State = TypeVar("State", Snapshot, Listing)
Child = TypeVar("Child")
Value = TypeVar("Value")


class Reading(NamedTuple):
    """A request for the data of a node, its children, or whether it exists.

    The last is for a node that does not exist: only that leaves a watch for its creation.
    """

    kind: Literal["data", "children", "existence"]
    path: str


class _Fact(Generic[Value]):
    """What an answer holds, and the transactions since and until which it is known to be true.

    ``until`` is None while its watch has told of no change: until the newest answer.
    """

    __slots__ = ("since", "until", "value")

    def __init__(self, value: Value, since: int, until: int | None = None) -> None:
        self.value: Final = value
        self.since: Final = since
        self.until = until


class Place(ABC, Generic[State]):
    """A node, and perhaps its children, as far as the answers over one connection have told them.

    Attributes:
        path: the node's.
        state: the newest state that was proven.
    """

    _kind: Literal["data", "children"]
    state: State

    def __init__(self, path: str) -> None:
        self.path: Final = path
        #: What is known of the node itself, and what to ask of it; None while it has not changed.
        self._own: _Fact[Any] | None = None
        self._missing: Literal["data", "children", "existence"] | None = self._kind
        #: The transactions that the newest answer shows, and the newest state that was proven.
        self._newest = self._proven = 0

    def readings(self) -> list[Reading]:
        """The requests of the next round; none if all that is known is true until now."""
        return [Reading(self._missing, self.path)] if self._missing else []

    def take(self, reading: Reading, found: Any, zxid: int) -> None:
        """Take the answer, None where there is no such node; it shows transaction ``zxid``."""
        self._newest = zxid
        if reading.path == self.path:
            self._take_own(reading, found)
        else:
            self._take_child(reading.path.rpartition("/")[2], found)

    def fired(self, kind: str, path: str) -> None:
        """A watch has told that ``path`` has changed in this way: see kazoo's `EventType`."""
        ignored = EventType.CHANGED if self._kind == "children" else EventType.CHILD
        if path == self.path and kind != ignored:
            self._missing = self._kind
            if self._own is not None:
                self._end(self._own)

    def advance(self) -> bool:
        """Whether all answers prove a `state` that is newer. To be called after each round."""
        facts = self._facts()
        if facts is None:
            return False
        zxid = min(self._newest if fact.until is None else fact.until for fact in facts)
        if zxid <= self._proven or any(fact.since > zxid for fact in facts):
            return False
        self._proven = zxid
        self.state = self._state(zxid)
        return True

    def _end(self, fact: _Fact[Any]) -> None:
        """An event has told that this has changed."""
        if fact.until is None:
            fact.until = self._newest

    def _take_own(self, reading: Reading, found: Any) -> None:
        """Take what the node itself holds, None where it does not exist."""
        if found is None:
            # Then only a request for its existence leaves a watch.
            is_watched = reading.kind == "existence"
            self._missing = None if is_watched else "existence"
            self._own = _Fact(self._value(None), self._newest, None if is_watched else self._newest)
        elif reading.kind == "existence":
            self._missing = self._kind
        else:
            self._missing = None
            _, stat = found
            # Where the counter of a node's children has reached its end, `pzxid` misses those that
            # are created (`test_spent_counter`). But their own periods begin later.
            since = stat.pzxid if self._kind == "children" else stat.mzxid
            self._own = _Fact(self._value(found), int(since))

    def _take_child(self, name: str, found: Any) -> None:
        """Take what a child holds, None where it does not exist."""

    def _facts(self) -> Sequence[_Fact[Any]] | None:
        """All that the state is made of; None while nothing is known of a part of it."""
        return None if self._own is None else [self._own]

    @abstractmethod
    def _value(self, found: Any) -> Any:
        """What the node itself tells, None where it does not exist."""

    @abstractmethod
    def _state(self, zxid: int) -> State:
        """The state as of transaction ``zxid``, which was proven just now."""


class KeyPlace(Place[Listing]):
    """One key of data."""

    _kind = "data"

    def _value(self, found: Any) -> VersionedValue | None:
        return None if found is None else stored(*found)

    def _state(self, zxid: int) -> Listing:
        assert self._own is not None
        value = self._own.value
        return Listing({} if value is None else {self.path: value}, zxid)


class _Parent(Place[State], Generic[State, Child]):
    """A node whose children are what counts.

    Where children change all the time, others change while those that have changed are read, and
    the round may prove no state. Then the next one reads all that have changed since the last
    state. So in the end a round reads everything that changes, at about one moment, and nothing
    else.
    """

    _kind = "children"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        #: What is known of children, by their names.
        self._children: dict[str, _Fact[Child]] = {}
        #: The children to read: not known yet, or changed since the state that was proven last.
        self._wanted: set[str] = set()

    def fired(self, kind: str, path: str) -> None:
        super().fired(kind, path)
        parent, _, name = path.rpartition("/")
        if (parent or "/") != self.path or name not in self._children:
            return
        self._end(self._children[name])
        if kind == EventType.DELETED:
            self._gone(name)
        else:
            self._wanted.add(name)

    def readings(self) -> list[Reading]:
        above = self.path.rstrip("/")
        return super().readings() + [Reading("data", f"{above}/{name}") for name in self._wanted]

    def _facts(self) -> Sequence[_Fact[Any]] | None:
        if self._own is None:
            return None
        names: Sequence[str] = self._own.value
        if not all(name in self._children for name in names):
            return None
        return [self._own, *(self._children[name] for name in names)]

    def _take_own(self, reading: Reading, found: Any) -> None:
        super()._take_own(reading, found)
        assert self._own is not None  # its existence is asked for after its children
        names, children, wanted = self._own.value, self._children, self._wanted
        self._children = {name: children[name] for name in names if name in children}
        self._wanted = {
            name
            for name in names
            if name in wanted or name not in children or children[name].until is not None
        }

    def _take_child(self, name: str, found: Any) -> None:
        if found is not None:
            data, stat = found
            if name not in self._children:
                self._wanted.discard(name)
            self._children[name] = _Fact(self._child(name, data, stat), int(stat.mzxid))
        elif name in self._wanted:
            self._gone(name)

    def _gone(self, name: str) -> None:
        # The watch on the list has told it as well, or tells it before any other answer comes.
        self._wanted.discard(name)
        self._missing = self._kind

    def _value(self, found: Any) -> Sequence[str]:
        return self._selected(() if found is None else found[0])

    def _state(self, zxid: int) -> State:
        self._wanted = {name for name in self._wanted if self._children[name].until is not None}
        assert self._own is not None
        return self._made({name: self._children[name].value for name in self._own.value}, zxid)

    @abstractmethod
    def _selected(self, children: Sequence[str]) -> Sequence[str]:
        """The names among those of all children that count, in their order."""

    @abstractmethod
    def _child(self, name: str, data: bytes | None, stat: Any) -> Child:
        """What a child is in the state."""

    @abstractmethod
    def _made(self, children: dict[str, Child], zxid: int) -> State:
        """The state that consists of ``children``, which are in their order."""


class FolderPlace(_Parent[Listing, VersionedValue | None]):
    """All keys of data that have one part more than ``folder``, which ends with a slash."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder.rstrip("/") or "/")
        self._folder: Final = folder

    def _selected(self, children: Sequence[str]) -> Sequence[str]:
        return sorted(children)

    def _child(self, name: str, data: bytes | None, stat: Any) -> VersionedValue | None:
        return stored(data, stat)

    def _made(self, children: dict[str, VersionedValue | None], zxid: int) -> Listing:
        values = {
            self._folder + name: value for name, value in children.items() if value is not None
        }
        return Listing(values, zxid)


class QueuePlace(_Parent[Snapshot, Contender]):
    """A queue."""

    def __init__(self, queue: str, layout: nodes.Layout) -> None:
        super().__init__(layout.queue(queue))
        self._queue: Final = queue
        self._layout: Final = layout

    def _selected(self, children: Sequence[str]) -> Sequence[str]:
        return [name for _, name in nodes.ordered_names(children)]

    def _child(self, name: str, data: bytes | None, stat: Any) -> Contender:
        return self._layout.read(nodes.contender(self.path, name), data, stat)

    def _made(self, children: dict[str, Contender], zxid: int) -> Snapshot:
        return Snapshot(self._queue, tuple(children.values()), zxid)
