"""Multis, ZooKeeper's transactions: how operations on keys become operations on nodes. Pure.

A multi goes through the leader and a majority, all of it or nothing.

A key is a node that has data, which may be empty. A node whose data is null is no key: it exists
because of keys below it. A key that has others below it is deleted by setting its data to null.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kazoo.exceptions import RolledBackError

from coordlock.backend import Delete, Expect, Operation, Put
from coordlock.errors import BackendError
from coordlock_zookeeper.errors import translate

__all__ = ["KnownNodes", "NodeOperation", "above", "failure", "plan"]


@dataclass(frozen=True, slots=True)
class NodeOperation:
    """One operation of a multi; if it fails, ``expected`` was not met."""

    kind: Literal["check", "create", "set", "delete"]
    path: str
    data: bytes | None = None
    version: int = -1
    expected: Expect | None = None


@dataclass(frozen=True, slots=True)
class KnownNodes:
    """What is known of the nodes that a write concerns.

    Attributes:
        absent: those that do not exist, ancestors of keys included.
        keyless: those that exist and are no keys, with ZooKeeper's version of each.
        parents: those that have children.
    """

    absent: Collection[str] = ()
    keyless: Mapping[str, int] = field(default_factory=dict)
    parents: Collection[str] = ()


def plan(
    guards: Sequence[str], operations: Sequence[Operation], known: KnownNodes
) -> list[NodeOperation]:
    """The multi that does ``operations`` if the nodes ``guards`` exist, or fails and does nothing.

    ZooKeeper has no operation that writes a node whether it exists or not. So the multi also fails
    where a node is not as ``known``: those not named there exist, are keys and have no children.

    Operations are done in their order. So guards and expectations come first. Then parents are
    created before their children, and at last children are deleted before their parents. To check
    that a node does not exist, the multi creates it, or its topmost missing ancestor, and deletes
    it again. To check that a node is no key, it checks the version, as a write would raise that.
    """
    expected = [expect for expect in operations if isinstance(expect, Expect)]
    puts = {put.key: put.data for put in operations if isinstance(put, Put)}
    deleted = {delete.key for delete in operations if isinstance(delete, Delete)}
    new = {
        expect.key: expect
        for expect in expected
        if expect.version == 0 and expect.key not in known.keyless
    }
    absent = {*known.absent, *new}
    kept = {*known.parents, *above(puts)}

    multi = [NodeOperation("check", guard) for guard in guards]
    for expect in expected:
        if expect.version:
            version = _signed(expect.version)
            multi.append(NodeOperation("check", expect.key, version=version, expected=expect))
        elif expect.key in known.keyless:
            multi.append(NodeOperation("check", expect.key, version=known.keyless[expect.key]))
    for key in sorted((deleted & absent | new.keys()) - puts.keys()):
        top = next((ancestor for ancestor in _ancestors(key) if ancestor in absent), key)
        multi += [NodeOperation("create", top, expected=new.get(top)), NodeOperation("delete", top)]

    created: set[str] = set()
    for key in sorted(puts):
        if key not in absent:
            multi.append(NodeOperation("set", key, puts[key]))
            continue
        for parent in _ancestors(key):
            if parent in absent and parent not in created:
                created.add(parent)
                multi.append(NodeOperation("create", parent))
        created.add(key)
        multi.append(NodeOperation("create", key, puts[key], expected=new.get(key)))
    for key in sorted(deleted - absent, reverse=True):
        multi.append(NodeOperation("set" if key in kept else "delete", key))
    return multi


def failure(results: Sequence[Any]) -> tuple[int, BackendError] | None:
    """Which operation of a multi has failed, and how; None when all was done."""
    for number, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError):
            error = translate(result)
            assert isinstance(error, BackendError)
            return number, error
    return None


def above(keys: Collection[str]) -> set[str]:
    """The nodes above all of ``keys``."""
    return set[str]().union(*map(_ancestors, keys))


def _ancestors(path: str) -> list[str]:
    """The nodes above ``path``, from the top."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts))]


def _signed(version: int) -> int:
    """ZooKeeper's number for our ``version``, which counts from 1.

    It counts from 0 in 32 bits, signed, where -1 means any version. No node reaches that; all
    larger numbers become -2.
    """
    count = min(version - 1, 2**32 - 2)
    return count - 2**32 if count >= 2**31 else count
