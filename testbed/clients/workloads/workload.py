"""What all workloads have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from coordlock_faults.journal import Journal

from testbed.clients.attempt_log import AttemptLog
from testbed.clients.steps import Steps
from testbed.clients.worker import Worker

__all__ = ["Workload"]


class Workload(ABC):
    """What the workers of a client do with ``locks`` locks, which all clients share."""

    #: How many workers of each kind a client has.
    threads: ClassVar[int] = 2
    tasks: ClassVar[int] = 3
    #: Whether a thread and a task of each client `follow`.
    observes: ClassVar[bool] = False
    #: Whether it is wrong for the service to lose what it has acknowledged.
    keeps_data: ClassVar[bool] = False

    def __init__(self, locks: int) -> None:
        self.locks = [f"lock{number}" for number in range(locks)]

    @abstractmethod
    def round(self, worker: Worker) -> Steps[None]:
        """Ask for a lock once, and use it."""

    def work(self, worker: Worker) -> Steps[None]:
        """Round after round, until nothing new is to be begun."""
        while not worker.draining.is_set():
            yield from self.round(worker)
            yield from worker.pause(worker.dice.random() * 0.05)

    def follow(self, worker: Worker) -> Steps[None]:
        """Observe what the workers do, also while they end, and until nothing is news any more."""
        yield from ()

    def log_final(self, url: str, journal: Journal) -> None:
        """Write down what the service holds in the end. Raises `coordlock.CoordlockError`."""


def hold(worker: Worker, attempt: AttemptLog) -> Steps[None]:
    """Hold a lock for a while, without doing anything, and release it."""
    yield from worker.pause(worker.length())
    yield from worker.release(attempt)
