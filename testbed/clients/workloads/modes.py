"""modes: locks in all six modes, and semaphores; a fence protects the resource where it can."""

from __future__ import annotations

from typing import Final

from coordlock.model.claim import Claim, Mode, Permit
from testbed.clients.steps import Steps
from testbed.clients.worker import Worker
from testbed.clients.workloads.register import use
from testbed.clients.workloads.workload import Workload, hold

__all__ = ["Modes"]

#: How often each mode is asked for, in percent.
_OFTEN: Final = {Mode.NL: 5, Mode.CR: 15, Mode.CW: 20, Mode.PR: 30, Mode.PW: 10, Mode.EX: 20}
#: Those whose tokens have an order that tells the stale from the live.
_FENCED: Final = (Mode.PR, Mode.PW, Mode.EX)


class Modes(Workload):
    """Shared reads, exclusive adds, and claims under which nothing is done.

    Beside each lock is a semaphore of one, two or three.
    """

    threads, tasks = 3, 4

    def round(self, worker: Worker) -> Steps[None]:
        number = worker.dice.randrange(len(self.locks))
        lock, claim = self.locks[number], self._mode(worker)
        if worker.dice.random() < 0.5:
            lock, claim = f"semaphore{number}", Permit(1 + number % 3)
        attempt = yield from worker.acquire(lock, claim, worker.patience())
        if attempt is not None:
            yield from use(worker, attempt) if claim in _FENCED else hold(worker, attempt)

    def _mode(self, worker: Worker) -> Claim:
        [mode] = worker.dice.choices(list(_OFTEN), list(_OFTEN.values()))
        return mode
