"""Places on a model of ZooKeeper, where others write between any two messages."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from coordlock_zookeeper.nodes import Layout
from coordlock_zookeeper.places import Place, QueuePlace, Reading
from hypothesis import event, given, settings
from hypothesis import strategies as st
from kazoo.protocol.states import EventType

from coordlock.backend import Listing, VersionedValue
from coordlock.model.contender import Snapshot

#: What comes over the connection: an event, or a reading with the answer and its transaction.
Message = tuple[str, str] | tuple[Reading, Any, int]


class Node(NamedTuple):
    """The data, its version, and the transactions that made the node and that wrote it last."""

    data: bytes | None
    version: int
    born: int
    changed: int


class Server:
    """A tree, the watches of one client, and what is on the way to it, in its order.

    Where ``is_spent``, the counters of children are at their end: new ones leave no trace in the
    ``pzxid`` of the node above.
    """

    def __init__(self, *, is_spent: bool = False) -> None:
        self.is_spent = is_spent
        self.zxid = 1
        self.nodes: dict[str, Node] = {}
        #: By path, which transaction changed the children last.
        self.parents: dict[str, int] = {}
        #: The nodes after each transaction.
        self.history = [dict(self.nodes)] * 2
        self.sent: deque[Message] = deque()
        self._data: set[str] = set()
        self._children: set[str] = set()

    def change(self, *changes: tuple[str, bytes | None, bool]) -> None:
        """Make or write the nodes, or delete them and all below, in one transaction."""
        self.zxid += 1
        for path, data, is_there in changes:
            if is_there:
                self._put(path, data)
            else:
                self._delete(path)
        self.history.append(dict(self.nodes))

    def _put(self, path: str, data: bytes | None) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in self.nodes:
            self._put(parent, None)
        _, version, born, _ = self.nodes.get(path, (None, -1, self.zxid, 0))
        self.nodes[path] = Node(data, version + 1, born, self.zxid)
        is_new = version == -1
        if is_new:
            self.parents[path] = self.zxid
            if not self.is_spent:
                self.parents[parent] = self.zxid
        self._fire(self._data, path, EventType.CREATED if is_new else EventType.CHANGED)
        if is_new:
            self._fire(self._children, parent, EventType.CHILD)

    def _delete(self, path: str) -> None:
        for below in [one for one in self.nodes if one.startswith(f"{path}/")]:
            if below in self.nodes:
                self._delete(below)
        if self.nodes.pop(path, None) is not None:
            self.parents[path.rpartition("/")[0]] = self.zxid
            if {path} & (self._data | self._children):
                self._data.add(path)
                self._children.discard(path)
            self._fire(self._data, path, EventType.DELETED)
            self._fire(self._children, path.rpartition("/")[0], EventType.CHILD)

    def _fire(self, watches: set[str], path: str, kind: str) -> None:
        if path in watches:
            watches.remove(path)
            self.sent.append((kind, path))

    def answer(self, reading: Reading) -> None:
        """Answer, and note the watch where there is something to watch."""
        found: Any = None
        if reading.path in self.nodes or reading.kind == "existence":
            (self._children if reading.kind == "children" else self._data).add(reading.path)
        if reading.path in self.nodes:
            data, version, born, changed = self.nodes[reading.path]
            below = [one for one in self.nodes if one.rpartition("/")[0] == reading.path]
            names = [one.rpartition("/")[2] for one in reversed(below)]
            stat = SimpleNamespace(
                version=version,
                czxid=born,
                mzxid=changed,
                pzxid=self.parents[reading.path],
                ephemeralOwner=1,
            )
            found = {"data": (data, stat), "children": (names, stat), "existence": stat}[
                reading.kind
            ]
        self.sent.append((reading, found, self.zxid))


def stat(changed: int) -> SimpleNamespace:
    """Of a node that transaction ``changed`` has written."""
    return SimpleNamespace(version=0, mzxid=changed, pzxid=changed)


def listing(nodes: dict[str, Node], where: str) -> dict[str, VersionedValue]:
    def is_there(path: str) -> bool:
        return path.rpartition("/")[0] + "/" == where if where.endswith("/") else path == where

    return {
        path: VersionedValue(node.data, node.version + 1)
        for path, node in sorted(nodes.items())
        if node.data is not None and is_there(path)
    }


#: Contenders among them, so that the same tree is also a queue.
PATHS = ["/q", "/q/a", "/q/b", "/q/a/x", *(f"/q/{n}__nl__000000000{n}" for n in range(3))]
changes = st.tuples(
    st.sampled_from(PATHS), st.sampled_from([b"", b"1", b"2", None]), st.sampled_from([1, 1, 0])
)
steps = st.lists(
    st.one_of(
        st.lists(changes, min_size=1, max_size=3),
        st.lists(changes, min_size=1, max_size=1),
        st.sampled_from(["answer", "answer", "take", "take", "take", "settle", "restart"]),
    ),
    max_size=60,
)


class Client:
    """Sends the place's readings, and looks at what it shows."""

    def __init__(self, where: str, *, is_spent: bool = False) -> None:
        self.where = where
        self.server = Server(is_spent=is_spent)
        self._begin()

    def _begin(self) -> None:
        self.place: Place
        if self.where == "queue":
            self.place = QueuePlace("q", Layout(""))
        else:
            self.place = Place(self.where)
        #: The revision of each state that was shown.
        self.shown: list[int] = []
        #: The readings of the round that goes on: those to answer, and how many are to be taken.
        self._asked: deque[Reading] = deque()
        self._under_way = 0
        self._go_on()

    def _go_on(self) -> None:
        if not self._under_way:
            self._asked.extend(self.place.readings())
            self._under_way = len(self._asked)

    def answer(self) -> None:
        """Let the server answer what it was asked first."""
        if self._asked:
            self.server.answer(self._asked.popleft())

    def take(self) -> None:
        """Take what has come first."""
        if not self.server.sent:
            return
        message = self.server.sent.popleft()
        if len(message) == 2:
            self.place.fired(*message)
        else:
            self.place.take(*message)
            self._under_way -= 1
            if not self._under_way and self.place.advance():
                self._look(self.place.state)
        self._go_on()

    def restart(self) -> None:
        """Over a new connection, which has no watches."""
        before, self.server = self.server, Server(is_spent=self.server.is_spent)
        kept = {one: getattr(before, one) for one in ("zxid", "nodes", "parents", "history")}
        self.server.__dict__.update(kept)
        self._begin()

    def turn(self, between: Callable[[], object]) -> None:
        """What was asked is answered, with something ``between``, and all of it is taken."""
        for _ in range(len(self._asked)):
            self.answer()
            between()
        while self.server.sent:
            self.take()

    def settle(self) -> None:
        """Nothing happens any more but that what was asked is answered."""
        while self._asked or self.server.sent:
            self.take()
            self.answer()
        assert not self.place.readings()
        assert self._state_of(self.server.history[self.shown[-1]]) == self._state_of(
            self.server.nodes
        )

    def _look(self, state: Snapshot | Listing) -> None:
        assert state.revision > max(self.shown, default=0)
        self.shown.append(state.revision)
        shown: Any = (
            dict(state.values)
            if isinstance(state, Listing)
            else [(one.key, one.version, one.token) for one in state.contenders]
        )
        assert shown == self._state_of(self.server.history[state.revision])

    def _state_of(self, nodes: dict[str, Node]) -> object:
        """What the place would be if these were the nodes."""
        if self.where != "queue":
            return listing(nodes, self.where)
        contenders = sorted(one for one in nodes if one.startswith("/q/") and "__nl__" in one)
        return [(one, nodes[one].version + 1, nodes[one].born) for one in contenders]


@pytest.mark.parametrize("where", ["/q/", "/q/a", "/q/a/", "queue"])
@given(steps=steps, is_spent=st.booleans())
@settings(max_examples=400, deadline=None)
def test_whatever_is_shown_is_the_state_of_its_revision(
    where: str, steps: list[Any], is_spent: bool
) -> None:
    client = Client(where, is_spent=is_spent)
    for step in steps:
        if isinstance(step, list):
            client.server.change(*[(path, data, bool(there)) for path, data, there in step])
        else:
            getattr(client, step)()
    client.settle()
    event("several states" if len(client.shown) > 2 else "one state")


@pytest.mark.parametrize(("keys", "writes"), [(1, 30), (20, 4), (20, 40), (30, 3), (100, 10)])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_what_changes_all_the_time_is_shown(keys: int, writes: int, seed: int) -> None:
    """While a request is on its way there are so many writes, and some between the answers."""
    chance, client = random.Random(seed), Client("/q/")
    names = [f"/q/{number:04}" for number in range(keys)]
    client.server.change(*((name, b"", True) for name in names))

    def write() -> None:
        client.server.change((chance.choice(names), chance.randbytes(4), True))

    for _ in range(100):
        for _ in range(writes):
            write()
        client.turn(lambda: write() if chance.random() < 0.02 else None)
    assert len(client.shown) >= 4


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_a_queue_is_shown_in_which_somebody_comes_or_goes_all_the_time(seed: int) -> None:
    chance, client = random.Random(seed), Client("queue")
    there: deque[str] = deque()
    for number in range(300):
        there.append(f"/q/{number:04}__nl__{number:010}")
        client.server.change((there[-1], b"", True))
        if len(there) > 10:
            client.server.change((there.popleft(), None, False))
        client.server.change((chance.choice(there), chance.randbytes(4), True))
        client.turn(lambda: None)
    assert len(client.shown) >= 30
