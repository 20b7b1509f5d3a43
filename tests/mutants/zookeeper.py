"""Mistakes in speaking to ZooKeeper."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from coordlock_faults.exclusion import HeldTogether
from coordlock_faults.liveness import Unanswered
from coordlock_faults.loss import EarlyRemoval
from coordlock_faults.tokens import RepeatedToken
from coordlock_zookeeper import nodes
from coordlock_zookeeper.nodes import Layout
from coordlock_zookeeper.own_contenders import OwnContenders
from coordlock_zookeeper.watches import Watches
from kazoo.protocol.serialization import Exists

import coordlock
from coordlock.kernel.entries import Entries
from coordlock.kernel.ticket import Ticket
from coordlock.model.contender import Contender, Entry
from coordlock.runtime.promise import resolved
from tests.faults.mutants import scenarios
from tests.mutants.mutant import Changes, Play, mutant, nothing


@mutant(
    "The node with the number 10 comes before the one with 9, which holds the lock.",
    Play(scenarios.the_eleventh_comes, HeldTogether, ("zookeeper",)),
)
def orders_sequences_as_text() -> Changes:
    def as_text(sequence: int) -> int:
        return int.from_bytes(str(sequence).encode().ljust(11, b"\0"))

    return [(nodes, "order_of", as_text)]


def _with_guids(numbers: Iterator[int]) -> tuple[object, str, object]:
    """In the place of random ones: ``numbers``, for all clients."""
    made = Entries.made

    def numbered(self: Entries, *args: Any) -> tuple[Entry, ...]:
        return tuple(replace(one, id=f"{next(numbers):032x}") for one in made(self, *args))

    return Entries, "made", numbered


@mutant(
    "Names begin with GUIDs, and a later node with a smaller one comes first.",
    Play(scenarios.several_come, HeldTogether, ("zookeeper",)),
)
def orders_by_the_whole_name() -> Changes:
    """And each name comes before those that were made earlier."""
    ordered_names, contender = nodes.ordered_names, nodes.contender

    def name_as_order(child: str) -> int:
        return int.from_bytes(child.encode().ljust(64, b"\0"))

    def by_name(children: Any) -> list[tuple[int, str]]:
        return sorted((name_as_order(child), child) for _, child in ordered_names(children))

    def contender_by_name(parent: str, child: str, **options: Any) -> Contender:
        return replace(contender(parent, child, **options), order=name_as_order(child))

    return [
        (nodes, "ordered_names", by_name),
        (nodes, "contender", contender_by_name),
        _with_guids(itertools.count(2**127, -1)),
    ]


@mutant(
    "A node that goes with the session before is taken for a place in the queue.",
    Play(scenarios.a_session_is_lost_with_a_create, EarlyRemoval, ("zookeeper",)),
)
def adopts_the_node_of_an_old_session() -> Changes:
    """One acquire, the first, keeps its GUID over sessions, and takes what it finds under it."""
    enqueue, withdraw = OwnContenders.enqueue, Ticket.withdraw

    def look_first(self: OwnContenders, entries: Any, unless_blocked: bool = False) -> Any:
        """`OwnContenders.enqueue` as it would be if any node with the right GUID would do."""
        [entry] = entries
        parent = self._path(entry)
        try:
            listed = self._queues.lists.ask(parent)
            children = (yield listed).children
            found = f"{parent}/{next(one for one in children if nodes.has_id(one, entry.id))}"
            stat, _ = yield self._ask(Exists, found, None)
            snapshots = yield from self._enqueued(entries, [found], stat, [listed], False)
        except (coordlock.BackendError, StopIteration):
            snapshots = yield from enqueue(self, entries, unless_blocked)
        return snapshots

    def stay_in_line(self: Ticket) -> Any:
        return resolved(False) if self.session.ended is not None else withdraw(self)

    return [
        (OwnContenders, "enqueue", look_first),
        (Ticket, "withdraw", stay_in_line),
        _with_guids(itertools.chain([1, 2, 1], itertools.count(3))),
    ]


@mutant(
    "A token is given twice, when the queue was deleted in between.",
    Play(scenarios.a_queue_is_deleted, RepeatedToken, ("zookeeper",)),
)
def takes_the_sequence_for_the_token() -> Changes:
    return [(Layout, "token", lambda _, name, __: 1 + (nodes.sequence_of(name) or 0))]


@mutant(
    "A waiter that has changed its connection is never told that its turn has come.",
    Play(scenarios.a_waiter_changes_its_connection, Unanswered, ("zookeeper",)),
)
def forgets_watches_with_the_connection() -> Changes:
    return [(Watches, "rearm", nothing)]
