"""Redlock: a heartbeat that meets a request for a lock promises no more than that lock has."""

from __future__ import annotations

from typing import Any

from coordlock_redis.redlock import RedlockBackend

from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.promise import Promise


class Node:
    """Keeps what it is asked, for the test to answer."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def ask(self, request: Any) -> Promise[Any]:
        self.asked.append(request)
        promise: Promise[Any] = request.promise
        return promise


class Clock:
    time = 100.0

    def now(self) -> float:
        return self.time


def test_a_heartbeat_that_not_every_voter_has_counts_from_the_request() -> None:
    timers = SystemTimers("test")
    backend = RedlockBackend([], b"", 10.0, 0.0, timers)
    clock = Clock()
    a, b, c = nodes = [Node(), Node(), Node()]
    for name, value in (("_nodes", nodes), ("_servers", nodes), ("_majority", 2)):
        object.__setattr__(backend, name, value)
    object.__setattr__(backend, "_clock", clock)
    backend._session = "s"
    entry = Entry("queue", "id", Mode.EX, Owner("host", 1))
    acquired = backend.enqueue([entry])
    value = a.asked[0].arguments[1]
    a.asked[0].promise.resolve(value)
    c.asked[0].promise.resolve(b"rival r ")
    clock.time += 0.9  # the lock's keys may expire at 110.0

    beaten = backend.heartbeat()
    a.asked[1].promise.resolve([1])
    c.asked[1].promise.resolve([0])
    assert beaten.done()

    b.asked[0].promise.resolve(value)  # and it never has the heartbeat
    assert acquired.result()[0].contenders[0].id == "id"
    assert clock.time + beaten.result() < 110.0
