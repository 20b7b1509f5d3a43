"""queue: many tasks wait for the same few locks, and many of them not for long."""

from __future__ import annotations

from coordlock.model.claim import Mode
from testbed.clients.steps import Steps
from testbed.clients.worker import Patience, Worker
from testbed.clients.workloads.workload import Workload

__all__ = ["Queue"]


class Queue(Workload):
    """Long queues that are joined and left all the time, held for moments only."""

    threads, tasks = 2, 24

    def round(self, worker: Worker) -> Steps[None]:
        # Most wait for one lock.
        lock = self.locks[0] if worker.dice.random() < 0.7 else worker.dice.choice(self.locks)
        attempt = yield from worker.acquire(lock, Mode.EX, self._patience(worker))
        if attempt is not None:
            short = worker.dice.random() * 0.02
            # Past the first look at the own contender, now and then.
            yield from worker.pause(short if worker.dice.random() < 0.98 else 0.3)
            yield from worker.release(attempt)

    def _patience(self, worker: Worker) -> Patience:
        number, short = worker.dice.random(), worker.dice.expovariate(1 / 0.2)
        if number < 0.1:
            return Patience(once=True)
        if number < 0.35 and worker.is_async:
            return Patience(cancelled=short)
        if number < 0.6:
            return Patience(short)
        return Patience(worker.dice.uniform(5, 20) if number < 0.8 else None)
