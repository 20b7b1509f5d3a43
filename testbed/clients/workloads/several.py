"""multi and tree: several locks at once, in any order and in all modes; a semaphore among them."""

from __future__ import annotations

from typing import Any

from coordlock.locks.several import AsyncMultiLock, MultiLock
from coordlock.model.claim import Mode
from testbed.clients.steps import Steps
from testbed.clients.worker import Worker
from testbed.clients.workloads.workload import Workload

__all__ = ["Multi", "Tree"]

#: How often each mode is asked for, in percent.
_OFTEN = {Mode.CR: 10, Mode.CW: 20, Mode.PR: 30, Mode.PW: 10, Mode.EX: 30}


def _mode(worker: Worker) -> Mode:
    [mode] = worker.dice.choices(list(_OFTEN), list(_OFTEN.values()))
    return mode


class Multi(Workload):
    """Some of the locks; the last one is a semaphore of two."""

    def round(self, worker: Worker) -> Steps[None]:
        names = worker.dice.sample(self.locks, worker.dice.randint(1, len(self.locks)))
        wanted: list[Any] = [
            worker.client.semaphore(name, 2)
            if name == self.locks[-1]
            else worker.client.lock(name, mode=_mode(worker))
            for name in names
        ]
        yield from hold_all(worker, worker.client.multi_lock(wanted))


class Tree(Workload):
    """Nodes of a small tree."""

    def round(self, worker: Worker) -> Steps[None]:
        steps = [worker.dice.choice("ab") for _ in range(worker.dice.randint(0, 3))]
        path = "/".join([worker.dice.choice(self.locks[:2]), *steps])
        yield from hold_all(worker, worker.client.tree_lock(path, mode=_mode(worker)))


def hold_all(worker: Worker, lock: MultiLock | AsyncMultiLock) -> Steps[None]:
    """Take all, hold them for a while, and release them."""
    attempts = yield from worker.acquire_all(lock, worker.patience())
    if attempts:
        yield from worker.pause(worker.length())
        yield from worker.release(*attempts)
