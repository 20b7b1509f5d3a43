"""permits: semaphores of one, two and three."""

from __future__ import annotations

from coordlock.model.claim import Permit
from testbed.clients.steps import Steps
from testbed.clients.worker import Worker
from testbed.clients.workloads.workload import Workload, hold

__all__ = ["Permits"]


class Permits(Workload):
    """Semaphores whose number of permits follows from their name. No fence can protect them."""

    threads, tasks = 3, 4

    def round(self, worker: Worker) -> Steps[None]:
        number = worker.dice.randrange(len(self.locks))
        claim = Permit(1 + number % 3)
        attempt = yield from worker.acquire(self.locks[number], claim, worker.patience())
        if attempt is not None:
            yield from hold(worker, attempt)
