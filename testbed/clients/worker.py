"""One worker: a thread or a task that acquires, works and releases, over and over."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from coordlock_faults.events import (
    Kind,
    OperationAccepted,
    OperationOffered,
    OperationRefused,
)

from coordlock.client import AsyncClient, Client
from coordlock.errors import (
    AcquireTimeout,
    BackendUnavailable,
    DeadlockDetected,
    Evicted,
    LockLost,
    SessionLost,
    WorkQueueEmpty,
)
from coordlock.locks.several import AsyncMultiLock, MultiLock
from coordlock.model.claim import Claim, Mode, Permit, in_force
from testbed.clients.attempt_log import AttemptLog
from testbed.clients.scribe import Scribe
from testbed.clients.steps import Steps
from testbed.resource.protocol import Answer, Request
from testbed.resource.remote import AsyncRemote, Remote

__all__ = ["EXPECTED", "Ask", "Patience", "Worker"]

#: What faults may do to those who ask for a grant or release it. Nothing else is expected.
EXPECTED: Final = (
    AcquireTimeout,
    BackendUnavailable,
    DeadlockDetected,
    Evicted,
    LockLost,
    SessionLost,
    WorkQueueEmpty,
)
#: How often, in steps of 10 ms of this process' own time, to look whether the loss was told.
_LOOKS: Final = 1000


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call of acquire may take, in seconds; None for ever.

    ``once`` calls ``try_acquire``. ``cancelled`` is when the task gives up from outside.
    """

    timeout: float | None = None
    once: bool = False
    cancelled: float | None = None


#: Asks for a grant, for threads or for asyncio; None for "busy".
Ask = Callable[[Patience], Any]


def _asking(lock: Any) -> Ask:
    return lambda given: lock.try_acquire() if given.once else lock.acquire(given.timeout)


class Worker:
    """What a thread or a task needs in order to take the steps of a workload.

    Attributes:
        dice: its own, seeded.
        client: for threads or for asyncio.
        scribe: the process'.
        draining: set when nothing new is to be begun.
        parting: set when all others have ended, and whoever only looks is to end, too.
        remote: the resource, for threads or for asyncio.
    """

    def __init__(
        self,
        name: str,
        client: Client | AsyncClient,
        scribe: Scribe,
        stages: tuple[threading.Event, threading.Event],
        remote: Remote | AsyncRemote,
        seed: int,
    ) -> None:
        self.name: Final = name
        self.client: Final = client
        self.scribe: Final = scribe
        self.draining: Final = stages[0]
        self.parting: Final = stages[1]
        self.remote: Final = remote
        self.dice: Final = random.Random(f"{seed} {name}")
        self.is_async: Final = isinstance(client, AsyncClient)
        self._sleep: Final[Callable[[float], Any]] = asyncio.sleep if self.is_async else time.sleep

    def patience(self) -> Patience:
        """Any of the ways to ask for a lock."""
        number = self.dice.random()
        if number < 0.1 and self.is_async:
            return Patience(cancelled=self.dice.random() * 0.5)
        if number < 0.2:
            return Patience(once=True)
        if number < 0.25:
            return Patience(0.0)
        if number < 0.45:
            return Patience(self.dice.uniform(0.02, 0.5))
        return Patience(self.dice.uniform(5, 20) if number < 0.75 else None)

    def length(self) -> float:
        """For how long to hold, in seconds: mostly not long, sometimes past the deadline."""
        if self.dice.random() < 0.03:
            return self.client.settings.ttl * self.dice.uniform(1, 1.3)
        return float(self.dice.random() ** 2 * 0.3)

    def pause(self, seconds: float) -> Steps[None]:
        """Do nothing, in small steps, until the time is over or nothing new is to be begun."""
        end = time.monotonic() + seconds
        while not self.draining.is_set() and (left := end - time.monotonic()) > 0:
            yield partial(self._sleep, min(left, 0.1))

    def acquire(self, lock: str, claim: Claim, patience: Patience) -> Steps[AttemptLog | None]:
        """Ask for a lock; the attempt if it was granted."""
        wanted = (
            self.client.semaphore(lock, claim.of)
            if isinstance(claim, Permit)
            else self.client.lock(lock, mode=claim)
        )
        return (yield from self._acquire(lock, claim, wanted, patience))

    def acquire_upgradeable(self, lock: str, patience: Patience) -> Steps[AttemptLog | None]:
        """Ask for a shared lock that can become exclusive; the attempt if it was granted."""
        wanted = self.client.upgradeable_lock(lock)
        return (yield from self._acquire(lock, Mode.PR, wanted, patience))

    def _acquire(
        self, lock: str, claim: Claim, wanted: Any, patience: Patience
    ) -> Steps[AttemptLog | None]:
        attempt = self.scribe.attempt(lock, claim, actor=self.name)
        grant = yield from self.ask([attempt], _asking(wanted), patience)
        if grant is None:
            return None
        attempt.granted(grant)
        assert not attempt.withdrawn, f"{grant} was granted to a call that was cancelled"
        return attempt

    def acquire_all(
        self, lock: MultiLock | AsyncMultiLock, patience: Patience
    ) -> Steps[list[AttemptLog]]:
        """Ask for several locks at once; the attempts if they were granted, else none."""
        claims = {name: in_force(claim) for name, claim in lock.claims.items()}
        attempts = self.scribe.attempts(claims, self.name)
        grant = yield from self.ask(attempts, _asking(lock), patience)
        if grant is None:
            return []
        for attempt in attempts:
            attempt.granted(grant, grant.parts[attempt.lock].token)
        assert not attempts[0].withdrawn, f"{grant} was granted to a call that was cancelled"
        return attempts

    def ask(self, attempts: Sequence[AttemptLog], ask: Ask, patience: Patience) -> Steps[Any]:
        """The grant that ``ask`` gives; None where it fails, which is written down."""
        try:
            grant = yield partial(self._ask, attempts, ask, patience)
        except EXPECTED as error:
            for attempt in attempts:
                attempt.failed(type(error).__name__, str(error))
            return None
        except asyncio.CancelledError:
            if not attempts[0].withdrawn:
                raise
            for attempt in attempts:
                attempt.failed("CancelledError")
            return None
        if grant is None:
            for attempt in attempts:
                attempt.failed("busy")
        return grant

    def offer(self, attempt: AttemptLog, kind: Kind) -> Steps[Answer]:
        """Do something with the resource under a grant, without a look whether it is lost."""
        value = self.scribe.value() if kind is Kind.ADD else None
        operation = self.offered(attempt, attempt.lock, kind, value)
        request = Request(operation, attempt.lock, attempt.token, attempt.shared, kind, value)
        answer: Answer = yield partial(self.remote.offer, request)
        if answer.order is not None:
            self.scribe.journal.log(OperationAccepted, operation, answer.order, answer.value)
        elif answer.newest is not None:
            self.scribe.journal.log(OperationRefused, operation, answer.newest)
        return answer

    def offered(self, attempt: AttemptLog, resource: str, kind: Kind, value: int | None) -> str:
        """Write down that an operation is going to be offered; its name."""
        operation = self.scribe.operation()
        self.scribe.journal.log(
            OperationOffered,
            operation,
            resource,
            attempt.name,
            attempt.token,
            attempt.shared,
            kind,
            value,
        )
        return operation

    def release(self, *attempts: AttemptLog) -> Steps[None]:
        """Release a grant, lost or not; of several locks that are held together, all."""
        first = attempts[0]
        if first.lost:
            for attempt in attempts:
                yield from self.until_told(attempt)
        timeout = 0.05 if self.dice.random() < 0.1 else None
        for attempt in attempts:
            attempt.releasing(self.client.settings.request_timeout if timeout is None else timeout)
        try:
            held: bool = yield partial(first.grant.release, timeout)
        except EXPECTED as error:
            for attempt in attempts:
                attempt.release_failed(error)
        else:
            for attempt in attempts:
                attempt.released(held)

    def keep(self, attempt: AttemptLog) -> None:
        """Hold a grant through quiescence, to the end of the run."""
        self.scribe.kept.append(attempt)

    def until_told(self, attempt: AttemptLog) -> Steps[None]:
        """Wait for the thread that waits: it must be told of what everybody can see."""
        for _ in range(_LOOKS):
            if attempt.told.is_set():
                return
            yield partial(self._sleep, 0.01)
        raise AssertionError(f"{attempt.grant} is lost, and who waits for that was not told")

    def _ask(self, attempts: Sequence[AttemptLog], ask: Ask, patience: Patience) -> Any:
        asked = ask(patience)
        if patience.cancelled is None:
            return asked

        def withdraw() -> None:
            for attempt in attempts:
                attempt.withdraw()

        return _cancelled(asked, patience.cancelled, withdraw)


async def _cancelled(asked: Awaitable[Any], after: float, before: Callable[[], None]) -> Any:
    """Cancel the current task in what is ``asked``, unless that is over ``after`` seconds."""
    task = asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        # In the loop's own thread: so either the answer was written down, or it is never given.
        before()
        task.cancel()

    handle = asyncio.get_running_loop().call_later(after, cancel)
    try:
        return await asked
    finally:
        handle.cancel()
        if task.cancelling():
            task.uncancel()
