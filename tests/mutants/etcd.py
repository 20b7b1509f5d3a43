"""Mistakes in speaking to etcd."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordlock_etcd import keys
from coordlock_etcd.watches import EtcdWatch, Watch

from coordlock.model.contender import Snapshot
from coordlock.model.names import escape
from tests.mutants.mutant import SUITES, Changes, mutant


@mutant(
    "A departure between the reading of the queue and the watch is missed.",
    SUITES + "TestQueueOnEtcd::test_a_departure_before_the_watch_is_told_at_once",
)
def never_reads_what_a_watch_has_missed() -> Changes:
    created = EtcdWatch.created

    def created_in_time(self: EtcdWatch, revision: int) -> list[Watch]:
        created(self, revision)
        return []

    return [(EtcdWatch, "created", created_in_time)]


@mutant(
    "A token is not the one that the service gave, but a later number.",
    SUITES + "TestQueueOnEtcd::test_contenders_stand_in_the_order_of_their_tokens",
)
def takes_the_revision_of_the_answer_for_the_token() -> Changes:
    snapshot = keys.snapshot

    def with_revision(
        layout: Any, queue: str, kvs: Any, revision: int, *more: Any, **options: Any
    ) -> Snapshot:
        found = snapshot(layout, queue, kvs, revision, *more, **options)
        contenders = tuple(replace(one, token=revision) for one in found.contenders)
        return replace(found, contenders=contenders)

    return [(keys, "snapshot", with_revision)]


@mutant(
    "Clients of earlier releases look into other queues.",
    "tests/compatibility/test_mixed_fleets.py::test_they_wait_for_each_other_in_one_queue[etcd-first]",
)
def keeps_its_queues_elsewhere() -> Changes:
    return [(keys, "escape", lambda name: f"{escape(name)}-2")]
