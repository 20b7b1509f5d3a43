"""Transactions as multis, on a model of ZooKeeper's tree where others write in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_zookeeper.data import Data
from coordlock_zookeeper.requests import Requests
from hypothesis import event, given, settings
from hypothesis import strategies as st
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    Exists,
    GetData,
    SetData,
    Sync,
    Transaction,
)
from kazoo.security import OPEN_ACL_UNSAFE

from coordlock.backend import Delete as DeleteKey
from coordlock.backend import Expect, Operation, Put, VersionedValue
from coordlock.errors import (
    BackendError,
    BackendUnavailable,
    Evicted,
    VersionMismatch,
)
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender
from coordlock.runtime.driver import run_in_background

ME = Contender(id="me", key="/locks/q/me__lock__0000000000", claim=Mode.EX, order=0)
OTHER = ME.key.replace("me", "other")

#: Path to data, None where it is no key, and znode version.
Nodes = dict[str, tuple[bytes | None, int]]


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def with_ancestors(paths: Sequence[str]) -> set[str]:
    found = set()
    for path in paths:
        while path:
            found.add(path)
            path = parent(path)
    return found


class Tree:
    """A server, and the client to it; ``meddle`` is called before each request."""

    chroot = ""
    last_zxid = 0

    def __init__(self, nodes: Nodes, meddle: Callable[[Nodes], None] = lambda _: None) -> None:
        self.nodes = nodes
        self.meddle = meddle
        #: How often a multi came, what was there before the last one, and at each moment since.
        self.multis = 0
        self.before: Nodes = {}
        self.since: list[Nodes] = []
        self.lost_after: int | None = None

    def _call(self, request: Any, answer: Any) -> None:
        if isinstance(request, Sync):
            answer.set("/")
            return
        self.meddle(self.nodes)
        self.since.append(dict(self.nodes))
        if isinstance(request, Transaction):
            self.commit(request.operations, answer)
        elif request.path not in self.nodes:
            answer.set_exception(NoNodeError())
        else:
            data, version = self.nodes[request.path]
            stat = SimpleNamespace(version=version, dataLength=len(data or b""))
            answer.set({Exists: stat, GetData: (data, stat)}[type(request)])

    def commit(self, operations: Sequence[Any], answer: Any) -> None:
        self.multis += 1
        if self.multis == self.lost_after:
            answer.set_exception(ConnectionLoss())
            return
        self.before, after = dict(self.nodes), dict(self.nodes)
        self.since = [self.before]
        for number, operation in enumerate(operations):
            error = do(operation, after)
            if error is not None:
                rest = len(operations) - number - 1
                undone = [RolledBackError()] * number
                answer.set([*undone, error, *[RuntimeInconsistency()] * rest])
                return
        self.nodes.clear()
        self.nodes.update(after)
        answer.set([True] * len(operations))


def do(operation: Any, nodes: Nodes) -> Any:
    """Do one operation to ``nodes``; the exception by which it failed, or None."""
    path = operation.path
    if isinstance(operation, Create):
        if path in nodes:
            return NodeExistsError()
        if parent(path) and parent(path) not in nodes:
            return NoNodeError()
        nodes[path] = (operation.data, 0)
        return None
    if path not in nodes:
        return NoNodeError()
    version = nodes[path][1]
    if operation.version not in (-1, version):
        return BadVersionError()
    if isinstance(operation, Delete):
        if any(parent(one) == path for one in nodes):
            return NotEmptyError()
        del nodes[path]
    elif isinstance(operation, SetData):
        nodes[path] = (operation.data, version + 1)
    else:
        assert isinstance(operation, CheckVersion)
    return None


def guarded(tree: Tree) -> Data:
    return Data(Requests(tree), OPEN_ACL_UNSAFE)


def outcome(tree: Tree, operations: Sequence[Operation]) -> BaseException | None:
    return run_in_background(guarded(tree).write(operations, (ME,))).exception(0)


def read(data: Data) -> Mapping[str, VersionedValue]:
    return run_in_background(data.read("/a", ME)).result(0).values


def keys_of(nodes: Nodes) -> dict[str, bytes]:
    """The keys among the nodes, with what they hold."""
    return {path: data for path, (data, _) in nodes.items() if data is not None}


def should_be(nodes: Nodes, operations: Sequence[Operation]) -> dict[str, bytes]:
    """The keys after ``operations``, all of them at once."""
    after = keys_of(nodes)
    for one in operations:
        if isinstance(one, DeleteKey):
            after.pop(one.key, None)
    for one in operations:
        if isinstance(one, Put):
            after[one.key] = one.data
    return after


def unmet(nodes: Nodes, expected: Expect) -> bool:
    data, version = nodes.get(expected.key, (None, 0))
    return (0 if data is None else version + 1) != expected.version


KEYS = ["/a", "/b", "/a/a", "/a/b", "/b/b", "/a/a/a"]
keys = st.sampled_from(KEYS)


@st.composite
def transactions(draw: st.DrawFn) -> list[Operation]:
    choices = st.sampled_from(draw(st.sampled_from(["--pd", "-ppd", "--dd", "----"])))
    done = draw(st.fixed_dictionaries(dict.fromkeys(KEYS, choices)))
    expected = draw(st.dictionaries(keys, st.sampled_from([0, 0, 0, 1, 1, 2]), max_size=2))
    operations: list[Operation] = [Put(key, b"x") for key, what in done.items() if what == "p"]
    operations += [DeleteKey(key) for key, what in done.items() if what == "d"]
    operations += [Expect(key, version) for key, version in expected.items()]
    return draw(st.permutations(operations))


@given(
    there=st.dictionaries(keys, st.integers(0, 1), max_size=5),
    operations=transactions(),
    still_there=st.sampled_from([True, True, True, False]),
    meddling=st.lists(st.none() | keys, max_size=12),
)
@settings(max_examples=1000)
def test_a_transaction_is_done_as_a_whole_or_fails_for_its_reason_and_does_nothing(
    there: dict[str, int],
    operations: list[Operation],
    still_there: bool,
    meddling: list[str | None],
) -> None:
    nodes: Nodes = dict.fromkeys(with_ancestors([OTHER, *there]), (None, 0))
    nodes |= {path: (b"", version) for path, version in there.items()}
    if still_there:
        nodes[ME.key] = (b"", 0)
    left, at_first = list(meddling), dict(nodes)

    def meddle(nodes: Nodes) -> None:
        key = left.pop() if left else None
        if key is None:
            return
        if key not in nodes:
            for path in with_ancestors([key]):
                nodes.setdefault(path, (None, 0))
            nodes[key] = (b"", 0)
        elif not any(parent(one) == key for one in nodes):
            del nodes[key]

    tree = Tree(nodes, meddle)
    error = outcome(tree, operations)
    event(type(error).__name__)
    expected = [one for one in operations if isinstance(one, Expect)]
    if error is None:
        assert still_there
        hollow = {path for path, (data, _) in tree.before.items() if data is None}
        assert not any(unmet(tree.before, one) for one in expected if one.key not in hollow)
        assert not any(one.version > 1 for one in expected if one.key in hollow)
        assert keys_of(tree.nodes) == should_be(tree.before, operations)
        written = {one.key for one in operations if not isinstance(one, Expect)}
        assert all(tree.nodes[path] == tree.before[path] for path in tree.before.keys() - written)
        return
    assert left != meddling or tree.nodes == at_first
    if isinstance(error, Evicted):
        assert not still_there
    elif isinstance(error, VersionMismatch):
        assert still_there
        assert any(unmet(nodes, Expect(error.key, error.expected)) for nodes in tree.since)
        assert Expect(error.key, error.expected) in expected
    else:
        assert type(error) is BackendError
        assert "keep making and deleting" in str(error)
        assert meddling


def test_a_key_that_others_make_and_delete_all_the_time_is_given_up() -> None:
    requests = itertools.count()

    def meddle(nodes: Nodes) -> None:
        # Before each multi, and not before the look that follows it.
        if next(requests) % 2 == 0 and nodes.pop("/a", None) is None:
            nodes["/a"] = (b"1", 0)

    tree = Tree(dict.fromkeys(with_ancestors([ME.key, "/a"]), (b"1", 0)), meddle)
    error = outcome(tree, [Put("/a", b"x")])
    assert type(error) is BackendError
    assert "keep making and deleting" in str(error)
    assert b"x" not in keys_of(tree.nodes).values()


def test_a_multi_without_an_answer_is_not_sent_again() -> None:
    for lost_after in (1, 2):
        tree = Tree(dict.fromkeys(with_ancestors([ME.key]), (b"", 0)))
        tree.lost_after = lost_after
        assert isinstance(outcome(tree, [Put("/a/b", b"x")]), BackendUnavailable)
        assert tree.multis == lost_after


def test_a_guarded_reading_needs_its_guard_and_a_leader_that_was_not_replaced() -> None:
    tree = Tree(dict.fromkeys(with_ancestors([ME.key, "/a"]), (b"", 0)))
    data = guarded(tree)
    assert read(data) == {"/a": VersionedValue(b"", 1)}
    # One that was replaced, and does not know it yet, answers all but this.
    tree.lost_after = tree.multis + 1
    error = run_in_background(data.read("/a", ME)).exception(0)
    assert isinstance(error, BackendUnavailable)
    del tree.nodes[ME.key]
    assert isinstance(run_in_background(data.read("/a", ME)).exception(0), Evicted)


@pytest.mark.parametrize(
    ("znode", "version"), [(0, 1), (2**31 - 1, 2**31), (-(2**31), 2**31 + 1), (-2, 2**32 - 1)]
)
def test_versions_are_counted_past_the_end_of_zookeepers_numbers(znode: int, version: int) -> None:
    nodes: Nodes = dict.fromkeys(with_ancestors([ME.key]), (None, 0))
    tree = Tree(nodes | {"/a": (b"", znode)})
    assert read(guarded(tree)) == {"/a": VersionedValue(b"", version)}
    assert outcome(tree, [Expect("/a", version)]) is None
    assert (
        isinstance(outcome(tree, [Expect("/a", version + 1)]), VersionMismatch) or version > 2**31
    )
