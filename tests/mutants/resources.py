"""Mistakes of what a lock protects: of fences, and of the service that keeps data."""

from __future__ import annotations

from typing import Any

import coordlock_etcd.requests
import coordlock_zookeeper.data
from coordlock_faults.events import Kind
from coordlock_faults.register import LostAdd, StaleAccepted
from coordlock_zookeeper.multis import NodeOperation, plan

from coordlock.fencing.marks import Marks
from testbed.resource.protocol import Answer, Request
from testbed.resource.resource import Resource
from tests.faults.mutants import scenarios
from tests.mutants.mutant import Changes, Play, mutant


@mutant(
    "A past holder writes what a newer holder has read already.",
    Play(scenarios.a_holder_of_the_past_writes, StaleAccepted),
)
def fences_writes_only() -> Changes:
    take = Resource.take

    def lets_readers_in(self: Resource, request: Request) -> Answer:
        if request.kind is Kind.READ:
            with self._lock:
                return self._accept(request)
        return take(self, request)

    return [(Resource, "take", lets_readers_in)]


@mutant(
    "A past holder writes after a newer one.",
    Play(scenarios.a_holder_of_the_past_writes, StaleAccepted),
)
def accepts_any_token() -> Changes:
    return [(Marks, "admits", lambda *_: True)]


@mutant(
    "A past holder writes over what a newer one has written in the service.",
    Play(scenarios.a_holder_of_the_past_commits, LostAdd),
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
