"""Mistakes in speaking to ZooKeeper."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from coordlock_zookeeper import nodes
from coordlock_zookeeper.watches import Watches

import coordlock.kernel.engine
from coordlock.model.contender import Contender, Entry
from tests.mutants.mutant import SUITES, Changes, mutant, nothing


@mutant(
    "The node with the number 10 comes before the one with 9, which holds the lock.",
    SUITES + "TestQueueOnZookeeper::test_a_snapshot_lists_the_nearest_before_and_counts_the_rest",
)
def orders_sequences_as_text() -> Changes:
    def as_text(sequence: int) -> int:
        return int.from_bytes(str(sequence).encode().ljust(11, b"\0"))

    return [(nodes, "order_of", as_text)]


def _with_guids(numbers: Iterator[int]) -> tuple[object, str, object]:
    """In the place of random ones: ``numbers``, for all clients."""
    made = coordlock.kernel.engine.entries_of

    def numbered(*args: Any) -> tuple[Entry, ...]:
        return tuple(replace(entry, id=f"{next(numbers):032x}") for entry in made(*args))

    return coordlock.kernel.engine, "entries_of", numbered


@mutant(
    "Names begin with GUIDs, and a later node with a smaller one comes first.",
    SUITES + "TestQueueOnZookeeper::test_contenders_stand_in_the_order_of_their_tokens",
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
    "A waiter that has changed its connection is never told that its turn has come.",
    SUITES
    + "TestFaultOnZookeeper::test_a_waiter_sees_a_departure_that_happened_while_it_was_cut_off",
)
def forgets_watches_with_the_connection() -> Changes:
    return [(Watches, "rearm", nothing)]
