"""Mistakes in speaking to ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence

from coordlock_zookeeper import nodes
from coordlock_zookeeper.watches import Watches

from coordlock.model.contender import Contender
from tests.mutants.mutant import SUITES, Changes, mutant, nothing


@mutant(
    "The node with the number 10 comes before the one with 9, which holds the lock.",
    SUITES + "TestQueueOnZookeeper::test_a_snapshot_lists_the_nearest_before_and_counts_the_rest",
)
def orders_sequences_as_text() -> Changes:
    def as_text(parent: str, children: Sequence[str]) -> list[Contender]:
        return sorted(in_order(parent, children), key=lambda contender: str(contender.order))

    in_order = nodes.in_order
    return [(nodes, "in_order", as_text)]


@mutant(
    "A waiter that has changed its connection is never told that its turn has come.",
    SUITES
    + "TestFaultOnZookeeper::test_a_waiter_sees_a_departure_that_happened_while_it_was_cut_off",
)
def forgets_watches_with_the_connection() -> Changes:
    return [(Watches, "rearm", nothing)]
