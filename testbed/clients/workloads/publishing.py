"""Grants that publish a value, and observers of them.

elect: clients campaign, publish and resign, and observe the leader. gather: clients join groups,
change their values and leave, and observe the members.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from coordlock_faults.events import Act, Present
from coordlock_faults.journal import Journal

import coordlock
from coordlock.model.claim import Mode
from coordlock.recipes.election import Candidate
from coordlock.recipes.group import GroupView, Member
from testbed.clients.attempt_log import AttemptLog
from testbed.clients.following import follow
from testbed.clients.steps import Steps
from testbed.clients.worker import EXPECTED, Patience, Worker
from testbed.clients.workloads.workload import Workload

__all__ = ["Elect", "Gather"]


class _Publishing(Workload):
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
        grant: Any = attempt.grant
        mark = worker.scribe.value()
        log = worker.scribe.call(Act.PUBLISH, attempt.lock, attempt.name, (mark,))
        try:
            yield partial(grant.publish, b"%d" % mark)
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


class Elect(_Publishing):
    """Elections with the names of locks."""

    claim = Mode.EX

    def patience(self, worker: Worker) -> Patience:
        # No client waits for ever, because the last leader stays leader through quiescence.
        given = worker.patience()
        return Patience(worker.dice.uniform(2, 8)) if given == Patience() else given

    def stand(self, client: Any, name: str, mark: bytes, timeout: float | None) -> Any:
        return client.election(name).campaign(mark, timeout=timeout)

    def place(self, client: Any, name: str) -> Any:
        return client.election(name)

    def ask(self, place: Any) -> Callable[[], Any]:
        leader: Callable[[], Any] = place.leader
        return leader

    def state(self, told: Candidate | None) -> tuple[int, ...]:
        return () if told is None else (told.token or 0, int(told.value))


class Gather(_Publishing):
    """Groups with the names of locks."""

    claim = Mode.NL

    def patience(self, worker: Worker) -> Patience:
        # Who joins waits for nobody.
        cancelled = worker.is_async and worker.dice.random() < 0.1
        return Patience(cancelled=worker.dice.random() * 0.02 if cancelled else None)

    def stand(self, client: Any, name: str, mark: bytes, timeout: float | None) -> Any:
        return client.group(name).join(mark)

    def place(self, client: Any, name: str) -> Any:
        return client.group(name)

    def ask(self, place: Any) -> Callable[[], Any]:
        members: Callable[[], Any] = place.members
        return members

    def state(self, told: GroupView | tuple[Member, ...]) -> tuple[int, ...]:
        members = told.members if isinstance(told, GroupView) else told
        return tuple(number for one in members for number in (one.token or 0, int(one.value)))
