"""guarded: sets in the service itself, which are added to in transactions under a grant.

Each set is a key, and a new one is begun when it is full, so that values stay small. Its version is
the order of the adds, because each is one write. Where a commit was not answered, one may stop and
release, as half of the sets are used; or go on, if every commit expects the version that was read.
"""

from __future__ import annotations

import json
from functools import partial
from itertools import count
from typing import Final

from coordlock_faults.events import Kind, OperationAccepted, OperationFailed
from coordlock_faults.journal import Journal

import coordlock
from coordlock.backend import VersionedValue
from coordlock.errors import BackendError, LockLost, VersionMismatch
from coordlock.model.claim import Mode
from testbed.clients.attempt_log import AttemptLog
from testbed.clients.steps import Steps
from testbed.clients.worker import Worker
from testbed.clients.workloads.workload import Workload

__all__ = ["Guarded"]

#: Adds per key.
_FULL: Final = 50
#: How many adds a hold makes at most.
_ADDS: Final = 4


class Guarded(Workload):
    """A fenced register that the service keeps."""

    threads, tasks = 2, 2
    keeps_data = True

    def __init__(self, locks: int) -> None:
        super().__init__(locks)
        #: Of each lock, the number of the key in use, as far as is known.
        self._numbers = dict.fromkeys(self.locks, 0)
        #: What the service said that it did not write.
        self._unwritten: set[int] = set()

    def round(self, worker: Worker) -> Steps[None]:
        lock = worker.dice.choice(self.locks)
        attempt = yield from worker.acquire(lock, Mode.EX, worker.patience())
        if attempt is None:
            return
        if worker.dice.random() < 0.5:
            # The clock would tell that it is too late. Here the service alone has to.
            vars(attempt.grant)["check"] = lambda: None
        expects = self.locks.index(lock) % 2 == 1
        doubt = False
        for _ in range(worker.dice.randint(1, _ADDS)):
            found = yield from self._add(worker, attempt, expects, doubt)
            doubt = doubt or found is None
            if attempt.lost or worker.draining.is_set() or (doubt and not expects):
                break
        yield from worker.release(attempt)

    def _add(
        self, worker: Worker, attempt: AttemptLog, expects: bool, doubt: bool
    ) -> Steps[bool | None]:
        """Read and write once; whether it was written, None where nobody knows."""
        grant, journal = attempt.grant, worker.scribe.journal
        try:
            key, stored, values = yield from self._read(worker, attempt)
        except (BackendError, LockLost):
            return False
        assert self._unwritten.isdisjoint(values), f"{key} holds what was said not to be written"
        yield from worker.pause(worker.length() / 2)
        value = worker.scribe.value()
        transaction = grant.transaction().put(key, json.dumps([*values, value]).encode())
        if expects:
            transaction.expect(key, stored.version)
        operation = worker.offered(attempt, key, Kind.ADD, value)
        try:
            yield transaction.commit
        except (BackendError, LockLost, VersionMismatch) as error:
            journal.log(OperationFailed, operation, type(error).__name__, str(error))
            if isinstance(error, BackendError):
                return None
            self._unwritten.add(value)
            if isinstance(error, VersionMismatch) and not (doubt or attempt.lost):
                raise AssertionError(f"somebody wrote {key} under {grant}") from error
            return False
        journal.log(OperationAccepted, operation, stored.version + 1)
        return True

    def _read(
        self, worker: Worker, attempt: AttemptLog
    ) -> Steps[tuple[str, VersionedValue, list[int]]]:
        """The key in use, and what it holds."""
        while True:
            number = self._numbers[attempt.lock]
            key = _key(worker.client.settings.root, attempt.lock, number)
            found: VersionedValue | None = yield partial(attempt.grant.read, key)
            stored = found or VersionedValue(b"[]", 0)
            if stored.version < _FULL:
                return key, stored, json.loads(stored.data)
            self._numbers[attempt.lock] = max(self._numbers[attempt.lock], number + 1)

    def log_final(self, url: str, journal: Journal) -> None:
        with coordlock.connect(url) as client, client.lock("final").acquire(60) as grant:
            for lock in self.locks:
                for number in count():
                    # Also the one after the last: adds to it may have been tried.
                    key = _key(client.settings.root, lock, number)
                    found = grant.read(key)
                    journal.final_set(key, json.loads(found.data) if found else [])
                    if found is None:
                        break


def _key(root: str, lock: str, number: int) -> str:
    return f"{root}-data/{lock}/{number}"
