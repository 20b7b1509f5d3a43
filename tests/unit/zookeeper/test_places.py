"""Places on a model of ZooKeeper, where others write between any two messages."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_zookeeper.contenders import Described
from coordlock_zookeeper.following import Following, Reader
from coordlock_zookeeper.places import FolderPlace, KeyPlace, Need, Place, QueuePlace
from hypothesis import event, given, settings
from hypothesis import strategies as st
from kazoo.protocol.states import EventType

from coordlock.backend import Listing, Observation, Stored
from coordlock.errors import AuthenticationFailed, BackendError
from coordlock.model.contender import Snapshot
from coordlock.runtime.promise import Promise

#: What comes over the connection: an event, or a need with the answer and its transaction.
Message = tuple[str, str] | tuple[Need, Any, int]


class Server:
    """A tree, the watches of one client, and what is on the way to it, in its order."""

    def __init__(self) -> None:
        self.zxid = 1
        #: By path: the data, its version, and the transaction that made the node.
        self.nodes: dict[str, tuple[bytes | None, int, int]] = {}
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
        _, version, born = self.nodes.get(path, (None, -1, self.zxid))
        self.nodes[path] = (data, version + 1, born)
        is_new = version == -1
        self._fire(self._data, path, EventType.CREATED if is_new else EventType.CHANGED)
        if is_new:
            self._fire(self._children, parent, EventType.CHILD)

    def _delete(self, path: str) -> None:
        for below in [one for one in self.nodes if one.startswith(f"{path}/")]:
            if below in self.nodes:
                self._delete(below)
        if self.nodes.pop(path, None) is not None:
            if {path} & (self._data | self._children):
                self._data.add(path)
                self._children.discard(path)
            self._fire(self._data, path, EventType.DELETED)
            self._fire(self._children, path.rpartition("/")[0], EventType.CHILD)

    def _fire(self, watches: set[str], path: str, kind: str) -> None:
        if path in watches:
            watches.remove(path)
            self.sent.append((kind, path))

    def answer(self, need: Need) -> None:
        """Answer, and note the watch where there is something to watch."""
        found: Any = None
        if need.path in self.nodes or need.kind == "existence":
            (self._children if need.kind == "children" else self._data).add(need.path)
        if need.path in self.nodes:
            data, version, born = self.nodes[need.path]
            stat = SimpleNamespace(version=version, czxid=born, ephemeralOwner=1)
            below = [one for one in self.nodes if one.rpartition("/")[0] == need.path]
            names = [one.rpartition("/")[2] for one in reversed(below)]
            found = {"data": (data, stat), "children": (names, stat), "existence": stat}[need.kind]
        self.sent.append((need, found, self.zxid))


def listing(nodes: dict[str, tuple[bytes | None, int, int]], where: str) -> dict[str, Stored]:
    def is_there(path: str) -> bool:
        return path.rpartition("/")[0] + "/" == where if where.endswith("/") else path == where

    return {
        path: Stored(data, version + 1)
        for path, (data, version, _) in sorted(nodes.items())
        if data is not None and is_there(path)
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
    """Asks for what the place needs, and looks at what it shows."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.server = Server()
        self.place: Place[Any]
        if where == "queue":
            self.place = QueuePlace("q", "/q", Described("czxid"))
        else:
            self.place = FolderPlace(where) if where.endswith("/") else KeyPlace(where)
        self.shown = 0
        self._asked = deque(self.place.needs())

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
            need, found, zxid = message
            self.place.take(need, found)
            if self.place.is_complete:
                self._look(zxid)
        self._asked.extend(self.place.needs())

    def restart(self) -> None:
        """Over a new connection, which has no watches."""
        before, self.server = self.server, Server()
        self.server.__dict__.update(zxid=before.zxid, nodes=before.nodes, history=before.history)
        self.place.restart()
        self._asked = deque(self.place.needs())

    def settle(self) -> None:
        """Nothing happens any more but that what was asked is answered."""
        while self._asked or self.server.sent:
            self.take()
            self.answer()
        assert self.place.is_complete
        self._look(self.server.zxid)

    def _look(self, zxid: int) -> None:
        self.shown += 1
        state, then = self.place.state(zxid), self.server.history[zxid]
        assert state.revision == zxid
        if isinstance(state, Snapshot):
            there = sorted(one for one in then if one.startswith("/q/") and "__nl__" in one)
            assert [one.key for one in state.contenders] == there
            assert [one.version for one in state.contenders] == [then[one][1] + 1 for one in there]
            assert [one.token for one in state.contenders] == [then[one][2] for one in there]
        else:
            assert dict(state.values) == listing(then, self.where)


@pytest.mark.parametrize("where", ["/q/", "/q/a", "/q/a/", "queue"])
@given(steps=steps)
@settings(max_examples=400, deadline=None)
def test_whatever_is_shown_is_the_state_of_its_revision(where: str, steps: list[Any]) -> None:
    client = Client(where)
    for step in steps:
        if isinstance(step, list):
            client.server.change(*[(path, data, bool(there)) for path, data, there in step])
        else:
            getattr(client, step)()
    client.settle()
    event("several states" if client.shown > 2 else "one state")


def test_a_round_is_not_begun_while_another_is_under_way() -> None:
    place = FolderPlace("/f/")
    stat = SimpleNamespace(version=0)
    [first] = place.needs()
    assert place.needs() == []
    place.take(first, (["b", "a"], stat))
    needs = place.needs()
    assert {need.path for need in needs} == {"/f/a", "/f/b"}
    place.take(needs[0], (b"", stat))
    place.fired(EventType.CHANGED, needs[0].path)
    assert place.needs() == []
    place.take(needs[1], (b"", stat))
    assert not place.is_complete
    assert place.needs() == [needs[0]]


def test_events_of_others_cost_nothing() -> None:
    stat = SimpleNamespace(version=0)
    folder, key = FolderPlace("/f/"), KeyPlace("/f")
    folder.take(folder.needs()[0], ([], stat))
    key.take(key.needs()[0], (b"", stat))
    folder.fired(EventType.CHANGED, "/f")  # its data
    folder.fired(EventType.CHANGED, "/f/a/b")
    key.fired(EventType.CHILD, "/f")
    key.fired(EventType.CREATED, "/f/a")
    assert folder.is_complete
    assert key.is_complete
    key.fired(EventType.DELETED, "/f")
    assert not key.is_complete


# Those who are told


def followed() -> tuple[Following, Observation[Listing]]:
    """A key that was read at transaction 5; all had been told by the moment 1."""
    following = Following("name", KeyPlace("/k"), 0.5)
    observation: Observation[Listing] = Observation(lambda: None, lambda: None, 0.5)
    following.join(observation)
    answer(following)
    following.show(5, 1.0)
    return following, observation


def answer(following: Following) -> None:
    for need in following.place.needs():
        following.place.take(need, (b"", SimpleNamespace(version=0)))


def test_what_is_shown_is_stale_since_all_was_told_last() -> None:
    following, observation = followed()
    assert (observation.view.state, observation.view.stale_since) == (following.state, None)
    following.told(2.0)
    following.doubt()
    following.told(3.0)
    following.doubt()
    assert observation.view.stale_since == 2.0
    answer(following)
    following.show(6, 4.0)
    assert observation.view.stale_since is None


def test_what_was_told_but_is_not_read_yet_leaves_the_state_as_old_as_it_was() -> None:
    following, observation = followed()
    following.place.fired(EventType.CHANGED, "/k")
    following.told(2.0)
    following.doubt()
    assert observation.view.stale_since == 1.0


def test_who_joins_is_shown_what_is_known_and_nothing_that_is_in_doubt() -> None:
    following, first = followed()
    second: Observation[Listing] = Observation(lambda: None, lambda: None, 1.5)
    following.join(second)
    assert second.view == first.view
    following.doubt()
    third: Observation[Listing] = Observation(lambda: None, lambda: None, 2.5)
    following.join(third)
    assert (third.view.state, third.view.stale_since) == (None, 2.5)


def test_a_reader_takes_one_state_or_the_reason_why_there_is_none() -> None:
    following, _ = followed()
    shown, doubted, ended = (Promise[Listing]() for _ in range(3))
    following.join(Reader(shown))
    following.show(7, 2.0)
    assert shown.result(0).revision == 5
    following.doubt()
    following.join(Reader(doubted))
    following.doubt()
    assert isinstance(doubted.exception(0), BackendError)
    following.join(Reader(ended))
    following.end(AuthenticationFailed("ZooKeeper", "no"))
    assert isinstance(ended.exception(0), AuthenticationFailed)
