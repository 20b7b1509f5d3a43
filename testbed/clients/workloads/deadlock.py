"""deadlock: one lock after the other, in any order, by threads and tasks that keep them all."""

from __future__ import annotations

from typing import Final

from coordlock.model.claim import Mode
from testbed.clients.steps import Steps
from testbed.clients.worker import Patience, Worker
from testbed.clients.workloads.workload import Workload

__all__ = ["Deadlock"]

#: Of those who take them in the order of their names, and so are in no cycle by themselves.
_ORDERLY: Final = 0.5


class Deadlock(Workload):
    """Two or three locks, exclusive or shared, some of them for as long as it takes."""

    def round(self, worker: Worker) -> Steps[None]:
        names = worker.dice.sample(self.locks, worker.dice.randint(2, min(3, len(self.locks))))
        if worker.dice.random() < _ORDERLY:
            names.sort()
        held = []
        for name in names:
            mode = Mode.PR if worker.dice.random() < 0.3 else Mode.EX
            patience = Patience(None if worker.dice.random() < 0.5 else worker.dice.uniform(3, 15))
            attempt = yield from worker.acquire(name, mode, patience)
            if attempt is None:
                break
            held.append(attempt)
            yield from worker.pause(worker.dice.random() * 0.1)
        for attempt in reversed(held):
            yield from worker.release(attempt)
