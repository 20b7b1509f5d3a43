"""Mistakes of what a lock protects: of fences, and of the service that keeps data."""

from __future__ import annotations

from typing import Any

import coordlock_etcd.requests
import coordlock_zookeeper.data
from coordlock_zookeeper.multis import NodeOperation, plan

from coordlock.fencing.marks import Marks
from tests.mutants.mutant import SUITES, Changes, mutant


@mutant(
    "A past holder writes after a newer one.",
    "tests/contract/test_fence_memory.py::TestMemoryFence::test_an_older_token_is_refused_and_nothing_is_written",
)
def accepts_any_token() -> Changes:
    return [(Marks, "admits", lambda *_: True)]


@mutant(
    "A past holder writes over what a newer one has written in the service.",
    SUITES + "TestTransactionOnEtcd::test_the_backend_itself_says_that_a_contender_has_gone",
    SUITES + "TestTransactionOnZookeeper::test_the_backend_itself_says_that_a_contender_has_gone",
)
def commits_without_its_contender() -> Changes:
    writes = coordlock_etcd.requests.guarded_writes

    def unguarded(*arguments: Any) -> Any:
        request = writes(*arguments)
        request.ClearField("compare")
        return request

    def plan_unguarded(*arguments: Any) -> list[NodeOperation]:
        return [NodeOperation("check", "/"), *plan(*arguments)[1:]]

    return [
        (coordlock_etcd.requests, "guarded_writes", unguarded),
        (coordlock_zookeeper.data, "plan", plan_unguarded),
    ]
