"""What is observed, data or a queue: its complete state, put together from answers. No I/O.

ZooKeeper reads one node at a time. So a place is read in rounds: a list of names, what each of them
holds, and then again whatever has changed meanwhile, until nothing has.

Why the answers together are a state. Each comes with a watch, and a server tells a client of a
change before it answers with anything that comes after it. So as long as the watch of an answer has
told nothing, the answer is still true. When the last answer of a round has come and none of the
watches has told anything before it, then all of them were true when the server gave the last one:
at that moment the service had this state, by the server's account of it, which has one order.

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

#: The server's own, at the top.
_SYSTEM: Final = "zookeeper"


class Need(NamedTuple):
    """A request that a place needs: for the data of a node, its children, or whether it is there.

    The last is for a node that is not there: a watch on anything else tells nothing of its coming.
    """

    kind: Literal["data", "children", "existence"]
    path: str


class Place(ABC, Generic[State]):
    """A node, and perhaps its children, as far as answers have told them."""

    _kind: Literal["data", "children"]

    def __init__(self, path: str) -> None:
        #: The node's.
        self.path: Final = path
        self._under_way: set[Need] = set()
        #: What is to be asked of the node itself; None while the answer is known to be true.
        self._lacking: Literal["data", "children", "existence"] | None = self._kind

    @property
    @abstractmethod
    def name(self) -> tuple[str, str]:
        """What tells places apart."""

    def restart(self) -> None:
        """Nothing that was told is known to be true any more, and no more answers come."""
        self._under_way.clear()
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
        """Whether all that was told is true together, at the moment of the last answer."""
        return not self._under_way and not self._needs()

    def take(self, need: Need, found: Any) -> None:
        """Take the answer, None where there is no such node."""
        self._under_way.discard(need)
        if need.path != self.path:
            self._take_part(need.path.rpartition("/")[2], found)
        elif need.kind == "existence":
            self._lacking = None if found is None else self._kind
        else:
            self._lacking = None if found is not None else "existence"
            self._take_own(found)

    def fired(self, kind: str, path: str) -> None:
        """A watch has told that ``path`` has changed in this way: see kazoo's `EventType`."""
        ignored = EventType.CHANGED if self._kind == "children" else EventType.CHILD
        if path == self.path and kind != ignored:
            self._lacking = self._kind

    @abstractmethod
    def state(self, zxid: int) -> State:
        """The state, which is complete, as of transaction ``zxid``."""

    def _needs(self) -> list[Need]:
        return [Need(self._lacking, self.path)] if self._lacking else []

    @abstractmethod
    def _take_own(self, found: Any) -> None:
        """Take what the node itself holds, None where it is not there."""

    def _take_part(self, name: str, found: Any) -> None:
        """Take what a child holds, None where it is not there."""
        raise NotImplementedError


class KeyPlace(Place[Listing]):
    """One key of data."""

    _kind = "data"

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._values: dict[str, Stored] = {}

    @property
    def name(self) -> tuple[str, str]:
        return "data", self.path

    def state(self, zxid: int) -> Listing:
        return Listing(self._values, zxid)

    def _take_own(self, found: Any) -> None:
        value = None if found is None else stored(*found)
        self._values = {} if value is None else {self.path: value}


class _Parent(Place[State], Generic[State, Part]):
    """A node whose children are what counts."""

    _kind = "children"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        #: The children that count, in their order, and what is known of them.
        self._names: Sequence[str] = ()
        self._parts: dict[str, Part] = {}
        #: Those of which nothing is known.
        self._missing: set[str] = set()

    def restart(self) -> None:
        super().restart()
        self._names = ()
        self._parts.clear()
        self._missing.clear()

    def fired(self, kind: str, path: str) -> None:
        super().fired(kind, path)
        parent, _, name = path.rpartition("/")
        if (parent or "/") != self.path or name not in self._parts:
            return
        del self._parts[name]
        self._missing.add(name)
        if kind == EventType.DELETED:
            self._gone(name)

    def _needs(self) -> list[Need]:
        above = self.path.rstrip("/")
        parts = [Need("data", f"{above}/{name}") for name in self._missing]
        return super()._needs() + parts

    def _take_own(self, found: Any) -> None:
        children = () if found is None else found[0]
        self._names = self._selected(children)
        self._missing = set(self._names) - self._parts.keys()  # of what has gone, none is left

    def _take_part(self, name: str, found: Any) -> None:
        if found is None:
            self._gone(name)
        else:
            self._parts[name] = self._part(name, *found)
            self._missing.discard(name)

    def _gone(self, name: str) -> None:
        # The watch on the list has told it as well, or tells it before any other answer comes.
        self._missing.discard(name)
        self._lacking = self._kind

    @abstractmethod
    def _selected(self, children: Sequence[str]) -> Sequence[str]:
        """The names among those of all children that count, in their order."""

    @abstractmethod
    def _part(self, name: str, data: bytes | None, stat: Any) -> Part:
        """What a child is in the state."""


class FolderPlace(_Parent[Listing, Stored | None]):
    """All keys of data that have one part more than ``folder``, which ends with a slash."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder.rstrip("/") or "/")
        self._folder: Final = folder

    @property
    def name(self) -> tuple[str, str]:
        return "data", self._folder

    def state(self, zxid: int) -> Listing:
        parts = ((name, self._parts[name]) for name in self._names)
        values = {self._folder + name: value for name, value in parts if value is not None}
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

    def state(self, zxid: int) -> Snapshot:
        return Snapshot(self._queue, tuple(self._parts[name] for name in self._names), zxid)

    def _selected(self, children: Sequence[str]) -> Sequence[str]:
        return [name for _, name in nodes.survey(children)]

    def _part(self, name: str, data: bytes | None, stat: Any) -> Contender:
        return self._described(nodes.contender(self.path, name), data, stat)
