"""register: exclusive locks, under which a fenced set is read and added to."""

from __future__ import annotations

import time

from coordlock_faults.events import Kind

from coordlock.model.claim import Mode
from testbed.clients.attempt_log import AttemptLog
from testbed.clients.steps import Steps
from testbed.clients.worker import Worker
from testbed.clients.workloads.workload import Workload

__all__ = ["Register", "use"]


class Register(Workload):
    """The fenced register, which is the resource of the lock's own name."""

    def round(self, worker: Worker) -> Steps[None]:
        lock = worker.dice.choice(self.locks)
        attempt = yield from worker.acquire(lock, Mode.EX, worker.patience())
        if attempt is not None:
            yield from use(worker, attempt)


def use(worker: Worker, attempt: AttemptLog) -> Steps[None]:
    """Read and add under a grant, until its time is over or the loss is seen; release it.

    As a naive user does it, who looks at the signal after each step and not before the next one.
    So a process that was stopped in a pause comes with one more, which may be too late.
    """
    length = worker.length()
    end = time.monotonic() + length
    kinds = [Kind.READ] if attempt.shared else [Kind.READ, Kind.ADD]
    while True:
        for kind in kinds:
            yield from worker.offer(attempt, kind)
        if attempt.lost or time.monotonic() > end or worker.draining.is_set():
            break
        yield from worker.pause(length * worker.dice.uniform(0.2, 0.5))
    yield from worker.release(attempt)
