"""Jobs: what is done once for each slot, however many processes start it.

A slot is what one run is for: the instant at which it is scheduled, or a number. The caller names
it, so hosts whose clocks differ ask for the same one. For each slot there is a record, which is
read and written under the job's lock, guarded by the holder's contender: see `ledger` for what
follows from it. A holder that has lost the lock can't write any more, so it never changes what its
successor wrote.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar, Final, Generic, Literal, TypeVar, cast

from coordlock.errors import AcquireTimeout, AlreadyRunning, ConfigurationError, Evicted
from coordlock.jobs import view
from coordlock.jobs.ledger import Ledger, Policy, Rules, State, due
from coordlock.jobs.run import AsyncJobRun, JobRun, check_kind, refuse
from coordlock.jobs.schedule import Schedule, interval_after, latest
from coordlock.jobs.slots import Slot, shown, slot_of
from coordlock.jobs.start import AsyncStart, Start
from coordlock.jobs.view import JobInfo
from coordlock.kernel.access import Access
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.ticket import Ticket
from coordlock.locks.lock import AcquireOptions
from coordlock.model.claim import Mode
from coordlock.recipes.shared.recipe import Recipe
from coordlock.runtime.clock import within
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.settings import DEFAULT, Duration, Timeout, seconds_of

__all__ = ["AsyncJob", "Job"]

R = TypeVar("R", JobRun, AsyncJobRun)

#: How far an instant may lie ahead of the service's time, in seconds.
_AHEAD: Final = 3600.0


class _BaseJob(Recipe, Generic[R]):
    """What sync and async jobs share."""

    _needs = ("data", "ordered")
    _run_kind: ClassVar[type[JobRun | AsyncJobRun]]

    def __init__(
        self,
        access: Access,
        name: str,
        *,
        policy: str = "at-most-once",
        overlap: Literal["skip", "queue"] = "skip",
        schedule: Schedule | None = None,
        catch_up: Literal["latest", "all"] = "latest",
        max_attempts: int = 10,
        retry_delay: Duration = 10.0,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        label: str | None = None,
    ) -> None:
        super().__init__(access, name)
        _one_of("policy", policy, tuple(map(str, Policy)))
        _one_of("overlap", overlap, ("skip", "queue"))
        _one_of("catch_up", catch_up, ("latest", "all"))
        if schedule is not None and not isinstance(schedule, Schedule):
            raise TypeError(f"schedule must be an Every or a Cron, not {schedule!r}")
        if type(max_attempts) is not int or max_attempts < 1:
            raise ValueError(f"max_attempts must be an integer from 1 on, not {max_attempts!r}")
        try:
            delay = timedelta(seconds=seconds_of(retry_delay))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"retry_delay: {retry_delay!r} is not {error}") from None
        self._rules = Rules(Policy(policy), max_attempts, delay, schedule, catch_up == "all")
        self._waits = overlap == "queue"
        self._options = AcquireOptions.of(access.settings, timeout, label, max_hold)

    # A run

    def _begin(self, slot: Slot) -> Steps[R]:
        """Acquire the job's lock and record the start of ``slot``; the run."""
        engine, options, began = self._access.engine, self._options, self._access.engine.clock.now()
        refuse(self.name, (yield from self._ledger()), slot, self._rules, is_locked=False)
        ahead = yield from self._ahead(slot)
        patience = options.timeout if self._waits else 0
        ticket = yield from self._acquired(patience, shown(slot))
        try:
            if patience is not None:
                patience -= engine.clock.now() - began
            run = cast(
                "R",
                self._run_kind(engine, ticket, self.name, slot, self._rules, ahead, patience),
            )
            yield from run._start()
            if options.max_hold is not None:
                engine.tickets.limit(ticket, options.max_hold)
            ticket.waited = engine.clock.now() - began
            return run
        except BaseException:
            ticket.withdraw()
            raise

    def _acquired(self, timeout: float | None, slot: str) -> Steps[Ticket]:
        """The job's lock. Raises `AlreadyRunning` where another has it and ``timeout`` is 0."""
        engine, queue = self._access.engine, view.queue_of(self.name)
        try:
            return (
                yield from acquisition(
                    engine,
                    {queue: Mode.EX},
                    timeout,
                    None,
                    self._options.label,
                    kind="job",
                    name=self.name,
                )
            )
        except AcquireTimeout:
            if timeout != 0:
                raise
        there = yield from engine.ask(partial(engine.backend.snapshot, queue, owners=True))
        raise AlreadyRunning(self.name, slot, str(next(iter(there.contenders), "")))

    def _ahead(self, slot: Slot) -> Steps[float]:
        """How far the service's own time is ahead of the engine's clock, in seconds.

        Raises `ConfigurationError` for an instant that lies too far ahead.
        """
        engine = self._access.engine
        found = yield from engine.ask(engine.backend.service_time)
        now = time.time() if found is None else found
        if isinstance(slot, datetime):
            ahead, most = slot.timestamp() - now, self._most_ahead(slot)
            if found is not None and ahead > most:
                raise ConfigurationError(
                    f"job {self.name!r}: slot {shown(slot)} is {ahead:.0f} s ahead of the "
                    f"service's time, more than the {most:.0f} s that are accepted: check this "
                    "host's clock"
                )
        return now - engine.clock.now()

    def _most_ahead(self, slot: datetime) -> float:
        schedule = self._rules.schedule
        interval = _AHEAD if schedule is None else interval_after(schedule, slot).total_seconds()
        return min(interval, _AHEAD)

    # The record

    def _ledger(self) -> Steps[Ledger]:
        return (yield from view.record_of(self._access.engine, self.name).get())

    def _due(self) -> Steps[tuple[Slot, ...]]:
        """The slots of the schedule that are to be run now, in order.

        - The last one up to half a minute after this host's present (half the interval, where that
          is less), unless it was started.
        - Those before it that are to be started again: begun under ``"at-least-once"`` and not
          done, once their ``retry_delay`` is over.
        - With the ``catch_up`` ``"all"`` up to 500 of those before it that were missed: that lie
          behind the floor, or behind the lowest recorded slot, and have no record.

        Raises ValueError where the job has no schedule, `NameConflict`, and `BackendUnavailable`.
        """
        schedule, now = self._rules.schedule, time.time()
        if schedule is None:
            raise ValueError(f"job {self.name!r} has no schedule: give it one, such as Every('1h')")
        ledger = yield from self._ledger()
        check_kind(self.name, ledger, latest(schedule, now))
        return tuple(due(ledger, schedule, now, self._rules))

    def _info(self) -> Steps[JobInfo]:
        """The job as the service keeps it. Raises `BackendUnavailable`, and `BackendError`.

        The latter for a record that a newer release wrote, or another program.
        """
        engine = self._access.engine
        record = view.record_of(engine, self.name)
        ledger = yield from record.get()
        return (yield from engine.bounded(view.info(engine, self.name, ledger, record)))

    def _retry(self, slot: Slot) -> Steps[None]:
        """Let ``slot`` be started once more, whatever became of it. For operators.

        The next `run` of it, or `due`, starts it. Raises LookupError for a slot without a record,
        `AlreadyRunning` while the job is at work, and what `run` raises.
        """
        slot, engine = slot_of(slot), self._access.engine
        ticket = yield from self._acquired(0, "")
        # Guarded: after a pause, others may be at work.
        record = view.record_of(engine, self.name, ticket.contenders[0])

        def steps() -> Steps[bool]:
            while True:
                ledger = yield from record.read()
                if (found := ledger.records.get(slot)) is None:
                    return False
                again = replace(found, state=State.RETRY)
                records = {**ledger.records, slot: again}
                changed = replace(ledger, records=records)
                if changed == ledger or (yield from record.write(changed.encode())):
                    return True

        try:
            is_recorded = yield from engine.bounded(steps(), "the job's record")
        except Evicted:
            raise Evicted(self.name, kind="job") from None
        finally:
            left = ticket.withdraw()
        # A call that comes right after this must not find the job at work.
        yield within(engine.timers, left, engine.settings.request_timeout)
        if not is_recorded:
            raise LookupError(f"job {self.name!r} has no record of slot {shown(slot)}")


class Job(_BaseJob[JobRun]):
    """Work that is done once for each slot, however many processes start it. Made by `Client`.

    As in::

        job = client.job("report")
        with suppress(JobNotRun), job.run(scheduled) as run:
            make_report(scheduled, token=run.token)
    """

    _run_kind = JobRun

    due = blocking(_BaseJob[JobRun]._due)
    info = blocking(_BaseJob[JobRun]._info)
    retry = blocking(_BaseJob[JobRun]._retry)

    def run(self, slot: Slot) -> Start:
        """Run ``slot``: a context manager, whose body is the work, or which raises `JobNotRun`.

        ``slot`` is the instant for which the run is scheduled, an aware datetime, or an integer;
        never "now". A job has slots of one kind. At the end of the block the slot is recorded as
        done, or as failed where the block raises. When the lock is lost meanwhile, ``run.lost`` is
        set, ``run.check()`` raises `LockLost`, and so does the end of the block, which then
        records nothing.

        To enter it raises a `JobNotRun`: `AlreadyDone`; `AlreadyFailed` for a slot that has failed,
        or was interrupted, and is not started again now; `AlreadyRunning` while the job is at work,
        unless it queues; `JobNotRun` itself for one that has left the history. Other errors are
        `ConfigurationError` for an instant too far ahead of the service's own time, `NameConflict`
        for a slot of another kind, and what `Lock.acquire` raises. Raises TypeError and ValueError
        for what is no slot.
        """
        return Start(self, slot_of(slot))


class AsyncJob(_BaseJob[AsyncJobRun]):
    """Work that is done once for each slot, however many processes start it.

    Made by `AsyncClient`. As in::

        job = client.job("report")
        with suppress(JobNotRun):
            async with job.run(scheduled) as run:
                await make_report(scheduled, token=run.token)
    """

    _run_kind = AsyncJobRun

    due = awaiting(_BaseJob[AsyncJobRun]._due)
    info = awaiting(_BaseJob[AsyncJobRun]._info)
    retry = awaiting(_BaseJob[AsyncJobRun]._retry)

    def run(self, slot: Slot) -> AsyncStart:
        """Run ``slot``: an async context manager, whose body is the work; see `Job.run`.

        The body is cancelled when the lock is lost, and `LockLost` raised in its place. The lock
        stays held until the body has ended, also where the body takes its time over that.
        """
        return AsyncStart(self, slot_of(slot))


def _one_of(what: str, value: object, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        words = ", ".join(map(repr, accepted))
        raise ValueError(f"{what} must be one of {words}, not {value!r}")
