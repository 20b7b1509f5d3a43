"""convert: what is read under a shared lock is there unchanged once that has become exclusive.

Each set is a key, as those of the workload guarded. Reading and writing is guarded by the
contender, so what is read was so while it stood in the queue. Whoever writes has an exclusive lock
then. So between two readings of one grant, the first of them shared, nobody may have written.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from coordlock_faults.events import Kind, OperationAccepted, OperationFailed

from coordlock.backend import VersionedValue
from coordlock.errors import BackendError, LockLost, WaitTimeout
from coordlock.model.claim import Mode
from testbed.clients.attempt_log import AttemptLog
from testbed.clients.steps import Steps
from testbed.clients.worker import EXPECTED, Worker
from testbed.clients.workloads.guarded import Guarded

__all__ = ["Convert"]


class Convert(Guarded):
    """A register that is read by sharers, one of which at a time goes on to write."""

    def round(self, worker: Worker) -> Steps[None]:
        lock, reads_only = worker.dice.choice(self.locks), worker.dice.random() < 0.4
        attempt = yield from (
            worker.acquire(lock, Mode.PR, worker.patience())
            if reads_only
            else worker.acquire_upgradeable(lock, worker.patience())
        )
        if attempt is None:
            return
        try:
            for _ in range(worker.dice.randint(1, 3)):
                if reads_only:
                    yield from self._read_twice(worker, attempt)
                else:
                    yield from self._read_and_write(worker, attempt)
                if attempt.lost or worker.draining.is_set():
                    break
        except (*EXPECTED, BackendError, WaitTimeout, LockLost):
            pass  # it is held as before, or lost
        yield from worker.release(attempt)

    def _read_twice(self, worker: Worker, attempt: AttemptLog) -> Steps[None]:
        key, before, _ = yield from self._read(worker, attempt)
        yield from worker.pause(worker.length() / 2)
        yield from self._same(attempt, key, before)

    def _same(self, attempt: AttemptLog, key: str, before: VersionedValue) -> Steps[None]:
        found: VersionedValue | None = yield partial(attempt.grant.read, key)
        after = found or VersionedValue(b"[]", 0)
        assert before == after, f"somebody wrote {key} beside a reader: {before}, {after}"

    def _read_and_write(self, worker: Worker, attempt: AttemptLog) -> Steps[None]:
        grant: Any = attempt.grant
        key, before, values = yield from self._read(worker, attempt)
        yield from worker.pause(worker.length() / 2)
        yield partial(grant.upgrade, worker.dice.choice([0.3, 5.0, 30.0]))
        yield from self._same(attempt, key, before)
        value = worker.scribe.value()
        written = [*values, value]
        operation = worker.offered(attempt, key, Kind.ADD, value)
        try:
            yield grant.transaction().put(key, json.dumps(written).encode()).commit
        except (BackendError, LockLost) as error:
            worker.scribe.journal.log(OperationFailed, operation, type(error).__name__, str(error))
            raise
        worker.scribe.journal.log(OperationAccepted, operation, before.version + 1)
        yield grant.downgrade
