"""modes: locks in all six modes; the resource is used where a fence can protect it."""

from __future__ import annotations

from typing import Final

from coordlock.model.claim import Mode
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
    """Shared reads, exclusive adds, and the modes under which nothing is done."""

    def round(self, worker: Worker) -> Steps[None]:
        lock = worker.dice.choice(self.locks)
        [mode] = worker.dice.choices(list(_OFTEN), list(_OFTEN.values()))
        attempt = yield from worker.acquire(lock, mode, worker.patience())
        if attempt is not None:
            yield from use(worker, attempt) if mode in _FENCED else hold(worker, attempt)
