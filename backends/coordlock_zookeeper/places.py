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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from kazoo.protocol.states import EventType

from coordlock.backend import Listing
from coordlock.model.contender import Contender, Snapshot
from coordlock_zookeeper import nodes
from coordlock_zookeeper.data import stored

__all__ = ["Place", "QueuePlace", "Reading"]

Kind = Literal["data", "children", "existence"]


class Reading(NamedTuple):
    """A request for the data of a node, its children, or whether it exists.

    The last is for a node that does not exist: only that leaves a watch for its creation.
    """

    kind: Kind
    path: str


@dataclass(slots=True)
class _Fact:
    """What an answer holds, and the transactions since and until which it is known to be true.

    ``until`` is None while its watch has told of no change: until the newest answer.
    """

    value: Any
    since: int
    until: int | None = None


class Place:
    """A key, or a folder, as far as the answers over one connection have told it.

    Where children change all the time, others change while those that have changed are read, and
    the round may prove no state. Then the next one reads all that have changed since the last
    state. So in the end a round reads everything that changes, at about one moment, and nothing
    else.

    Attributes:
        path: the node's.
        state: the newest state that was proven.
    """

    state: Any

    def __init__(self, where: str) -> None:
        """``where`` ends with a slash for a folder: all keys that have one part more."""
        self.path: Final = where.rstrip("/") or "/"
        self._kind: Final[Kind] = "children" if where.endswith("/") else "data"
        #: What is known, by paths: the paths of the children or what the node holds; and what they
        #: hold.
        self._facts: dict[str, _Fact] = {}
        #: What to read: it is not known, or has changed since the state that was proven last.
        self._wanted: dict[str, Kind] = {self.path: self._kind}
        #: The transactions that the newest answer shows, and the newest state that was proven.
        self._newest = self._proven = 0

    def readings(self) -> list[Reading]:
        """The requests of the next round; none if all that is known is true until now."""
        return [Reading(kind, path) for path, kind in self._wanted.items()]

    def take(self, reading: Reading, found: Any, zxid: int) -> None:
        """Take the answer, None where there is no such node; it shows transaction ``zxid``."""
        self._newest = zxid
        if reading.path == self.path:
            self._take_own(reading.kind, found)
        elif found is None:
            self._gone(reading.path)
        else:
            if reading.path not in self._facts:
                self._wanted.pop(reading.path, None)  # the list may have left it out meanwhile
            self._facts[reading.path] = self._held(reading.path, found)

    def fired(self, kind: str, path: str) -> None:
        """A watch has told that ``path`` has changed in this way: see kazoo's `EventType`."""
        is_own = path == self.path
        if is_own and kind == (EventType.CHANGED if self._kind == "children" else EventType.CHILD):
            return
        fact = self._facts.get(path)
        if fact is not None and fact.until is None:
            fact.until = self._newest
        if is_own:
            self._wanted[path] = self._kind
        elif fact is not None and kind == EventType.DELETED:
            self._gone(path)
        elif fact is not None:
            self._wanted[path] = "data"

    def advance(self) -> bool:
        """Whether all answers prove a `state` that is newer. To be called after each round."""
        if self.path not in self._facts or not all(part in self._facts for part in self._parts()):
            return False
        facts = [self._facts[path] for path in (self.path, *self._parts())]
        zxid = min(self._newest if fact.until is None else fact.until for fact in facts)
        if zxid <= self._proven or any(fact.since > zxid for fact in facts):
            return False
        self._proven = zxid
        for path in [*self._wanted]:
            if path != self.path and self._facts[path].until is None:
                del self._wanted[path]
        self.state = self._made({path: self._facts[path].value for path in self._parts()}, zxid)
        return True

    def _parts(self) -> Sequence[str]:
        """The paths of the nodes that hold the state, in their order."""
        return self._facts[self.path].value if self._kind == "children" else (self.path,)

    def _take_own(self, kind: Kind, found: Any) -> None:
        path, facts = self.path, self._facts
        del self._wanted[path]
        if kind == "existence" and found is not None:
            self._wanted[path] = self._kind
            return
        if self._kind == "data" and found is not None:
            facts[path] = self._held(path, found)
            return
        value: Any = None
        if self._kind == "children":
            value = self._selected(() if found is None else found[0])
        # Where the counter of a node's children has reached its end, `pzxid` misses those that are
        # created (`test_spent_counter`). But their own periods begin later.
        since = self._newest if found is None else int(found[1].pzxid)
        own = _Fact(value, since)
        self._facts = {path: own, **{part: facts[part] for part in value or () if part in facts}}
        wanted, self._wanted = self._wanted, {}
        if found is None and kind != "existence":  # only that leaves a watch then
            own.until = self._newest
            self._wanted[path] = "existence"
        for part in value or ():
            if part in wanted or part not in facts or facts[part].until is not None:
                self._wanted[part] = "data"

    def _gone(self, child: str) -> None:
        # The watch on the list has told it as well, or tells it before any other answer comes.
        if self._wanted.pop(child, None) or child in self._facts:
            self._wanted[self.path] = self._kind

    def _held(self, path: str, found: Any) -> _Fact:
        data, stat = found
        return _Fact(self._content(path, data, stat), int(stat.mzxid))

    def _selected(self, children: Sequence[str]) -> Sequence[str]:
        """The paths of those ``children`` that count, in their order."""
        return [f"{self.path.rstrip('/')}/{name}" for name in sorted(children)]

    def _content(self, path: str, data: bytes | None, stat: Any) -> Any:
        """What a node is in the state."""
        return stored(data, stat)

    def _made(self, contents: dict[str, Any], zxid: int) -> Any:
        """The state that consists of ``contents``, which are in their order."""
        return Listing({path: value for path, value in contents.items() if value is not None}, zxid)


class QueuePlace(Place):
    """A queue: a folder of contenders."""

    def __init__(self, queue: str, layout: nodes.Layout) -> None:
        super().__init__(f"{layout.queue(queue)}/")
        self._queue: Final = queue
        self._layout: Final = layout

    def _selected(self, children: Sequence[str]) -> Sequence[str]:
        return [contender.key for contender in nodes.in_order(self.path, children)]

    def _content(self, path: str, data: bytes | None, stat: Any) -> Contender:
        return self._layout.read(nodes.contender(self.path, path.rpartition("/")[2]), data, stat)

    def _made(self, contents: dict[str, Contender], zxid: int) -> Snapshot:
        return Snapshot(self._queue, tuple(contents.values()), zxid)
