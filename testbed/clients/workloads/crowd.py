"""crowd: dozens of tasks ask at once, each for a lock of its own, and all release at once.

Whoever waits for locks while others wait for his may do so for good; here nobody waits for long.
"""

from __future__ import annotations

from typing import Final

from coordlock_faults.events import Kind

from coordlock.model.claim import Mode
from testbed.clients.steps import Steps, at_once
from testbed.clients.worker import Patience, Worker
from testbed.clients.workloads.register import use
from testbed.clients.workloads.workload import Workload

__all__ = ["Crowd"]

#: How many locks there are, whatever the run says; and how many a crowd asks for.
_LOCKS: Final = 80
_CROWD: Final = 20, 40
#: How many of its grants are used: one after the other, by the crowd's only connection.
_USED: Final = 3


class Crowd(Workload):
    """One crowd in each process, and a thread that takes one lock at a time."""

    threads, tasks = 1, 1

    def __init__(self, locks: int) -> None:
        super().__init__(max(locks, _LOCKS))

    def round(self, worker: Worker) -> Steps[None]:
        if not worker.is_async:
            lock = worker.dice.choice(self.locks)
            attempt = yield from worker.acquire(lock, Mode.EX, worker.patience())
            if attempt is not None:
                yield from use(worker, attempt)
            return
        locks = worker.dice.sample(self.locks, worker.dice.randint(*_CROWD))
        asked = yield from at_once(
            [worker.acquire(lock, Mode.EX, self._patience(worker)) for lock in locks]
        )
        granted = [attempt for attempt in asked if attempt is not None]
        for attempt in granted[:_USED]:
            yield from worker.offer(attempt, Kind.ADD)
        yield from worker.pause(worker.length())
        yield from at_once([worker.release(attempt) for attempt in granted])

    def _patience(self, worker: Worker) -> Patience:
        number, short = worker.dice.random(), worker.dice.expovariate(1 / 0.05)
        if number < 0.05:
            return Patience(once=True)
        if number < 0.25:
            return Patience(cancelled=short)
        return Patience(short if number < 0.5 else worker.dice.uniform(0.2, 0.8))
