"""Fenced sets, which are read and added to under locks.

register: exclusive locks. modes: all six modes, and semaphores; the fence protects where it can.
"""

from __future__ import annotations

import time
from typing import Final

from coordlock_faults.events import Kind

from coordlock.model.claim import Claim, Mode, Permit
from testbed.clients.attempt_log import AttemptLog
from testbed.clients.steps import Steps
from testbed.clients.worker import Worker
from testbed.clients.workloads.workload import Workload, hold

__all__ = ["Modes", "Register"]

#: How often each mode is asked for, in percent.
_OFTEN: Final = {Mode.NL: 5, Mode.CR: 15, Mode.CW: 20, Mode.PR: 30, Mode.PW: 10, Mode.EX: 20}
#: Those whose tokens have an order that tells the stale from the live.
_FENCED: Final = (Mode.PR, Mode.PW, Mode.EX)


class Register(Workload):
    """The fenced register, which is the resource of the lock's own name."""

    def round(self, worker: Worker) -> Steps[None]:
        lock = worker.dice.choice(self.locks)
        attempt = yield from worker.acquire(lock, Mode.EX, worker.patience())
        if attempt is not None:
            yield from _use(worker, attempt)


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
            yield from _use(worker, attempt) if claim in _FENCED else hold(worker, attempt)

    def _mode(self, worker: Worker) -> Claim:
        [mode] = worker.dice.choices(list(_OFTEN), list(_OFTEN.values()))
        return mode


def _use(worker: Worker, attempt: AttemptLog) -> Steps[None]:
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
