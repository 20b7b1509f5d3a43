"""What elections and groups have in common: grants by which others know who is there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from coordlock_faults.events import Act, Present
from coordlock_faults.journal import Journal

import coordlock
from coordlock.model.claim import Mode
from testbed.clients.attempt_log import AttemptLog
from testbed.clients.following import follow
from testbed.clients.steps import Steps
from testbed.clients.worker import EXPECTED, Patience, Worker
from testbed.clients.workloads.workload import Workload

__all__ = ["Publishing"]


class Publishing(Workload):
    """Clients stand somewhere with a mark, change it, and leave; others look who is there."""

    observes = True
    claim: ClassVar[Mode]

    @abstractmethod
    def patience(self, worker: Worker) -> Patience:
        """How long to wait for a grant."""

    @abstractmethod
    def stand(self, client: Any, name: str, mark: bytes, timeout: float | None) -> Any:
        """Ask for the grant."""

    @abstractmethod
    def publish(self, grant: Any, mark: bytes) -> Any:
        """Publish another mark."""

    @abstractmethod
    def place(self, client: Any, name: str) -> Any:
        """What can be observed."""

    @abstractmethod
    def ask(self, place: Any) -> Callable[[], Any]:
        """What tells who is there."""

    @abstractmethod
    def state(self, told: Any) -> tuple[int, ...]:
        """What was told, or observed, as `Act` has it."""

    def round(self, worker: Worker) -> Steps[None]:
        attempt = yield from self._stand(worker, worker.dice.choice(self.locks))
        if attempt is None:
            return
        if worker.dice.random() < 0.5:
            # The clock would tell that it is too late. Here the service alone has to.
            vars(attempt.grant)["check"] = lambda: None
        times, length = worker.dice.randint(0, 3), worker.length()
        for _ in range(times):
            yield from worker.pause(length / (times + 1))
            yield from self._publish(worker, attempt)
        yield from worker.pause(length / (times + 1))
        if worker.draining.is_set() and not attempt.lost:
            worker.keep(attempt)
        else:
            yield from worker.release(attempt)

    def _stand(self, worker: Worker, name: str) -> Steps[AttemptLog | None]:
        scribe, mark = worker.scribe, worker.scribe.value()
        attempt = scribe.attempt(name, self.claim, actor=worker.name)
        log = scribe.call(Act.PUBLISH, name, attempt.name, (mark,))

        def ask(given: Patience) -> Any:
            timeout = 0.0 if given.once else given.timeout
            return self.stand(worker.client, name, b"%d" % mark, timeout)

        grant = yield from worker.ask([attempt], ask, self.patience(worker))
        if grant is None:
            log.raised("NotGranted")
            return None
        attempt.granted(grant)
        log.returned()
        return attempt

    def _publish(self, worker: Worker, attempt: AttemptLog) -> Steps[None]:
        mark = worker.scribe.value()
        log = worker.scribe.call(Act.PUBLISH, attempt.lock, attempt.name, (mark,))
        try:
            yield partial(self.publish, attempt.grant, b"%d" % mark)
        except EXPECTED as error:
            log.raised(type(error).__name__, str(error))
        else:
            if attempt.lost:  # which `check` would have told
                log.raised("LockLost")
            else:
                log.returned()

    def follow(self, worker: Worker) -> Steps[None]:
        name = worker.dice.choice(self.locks)
        place = self.place(worker.client, name)
        yield from follow(worker, name, place.observe, self.ask(place), self.state)

    def log_final(self, url: str, journal: Journal) -> None:
        with coordlock.connect(url) as client:
            for name in self.locks:
                journal.log(Present, name, self.state(self.ask(self.place(client, name))()))
