"""Jobs: what is done once for each slot, however many processes start it.

A slot is what one run is for: the instant at which it is scheduled, or a number. The caller names
it, so hosts whose clocks differ ask for the same one. For each slot there is a record, which is
read and written under the job's lock, guarded by the holder's contender: see `ledger` for what
follows from it. A holder that has lost the lock can't write any more, so it never changes what its
successor wrote.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
)

from coordlock.errors import (
    AcquireTimeout,
    AlreadyFailed,
    AlreadyRunning,
    Evicted,
    FutureSlot,
    JobNotRun,
)
from coordlock.jobs import view
from coordlock.jobs.ledger import Ledger, Policy
from coordlock.jobs.run import AsyncJobRun, JobRun, Present, check_kind, refuse
from coordlock.jobs.schedule import Schedule, due, interval_after, latest
from coordlock.jobs.slots import Slot, shown, slot_of
from coordlock.jobs.start import AsyncStart, Start
from coordlock.jobs.view import JobInfo
from coordlock.kernel.access import Access
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.stored_record import StoredRecord
from coordlock.kernel.ticket import Ticket
from coordlock.locks.base_lock import AcquireOptions
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender
from coordlock.recipes.shared.recipe import Recipe
from coordlock.runtime.clock import within
from coordlock.runtime.driver import Steps
from coordlock.runtime.functions import CoroutineFunction, PlainFunction
from coordlock.runtime.log import Log
from coordlock.runtime.methods import awaiting, blocking
from coordlock.settings import DEFAULT, Duration, Timeout, seconds_of

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Literal

    CatchUp = Literal["none", "latest", "all"]
    Overlap = Literal["skip", "queue"]

__all__ = ["AsyncJob", "Job"]

log = Log("coordlock")

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", JobRun, AsyncJobRun)

#: How far an instant may lie ahead of the service's time, in seconds, where no schedule tells.
_AHEAD: Final = 3600.0
#: The longest history.
_LONGEST: Final = 500

_DECORATED: Final = PlainFunction(
    "a job decorates functions",
    "whose body would run after the job's block",
    "decorate it with a job of connect_async()",
    "write `with job.run(slot)` inside of it",
)
_DECORATED_COROUTINE: Final = CoroutineFunction(
    "whose body would run after the job's block",
    "decorate it with a job of connect()",
    "write `async with job.run(slot)` inside of it",
)


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
        overlap: Overlap = "skip",
        schedule: Schedule | None = None,
        catch_up: CatchUp = "latest",
        history: int = 100,
        max_ahead: Duration | None = None,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        label: str | None = None,
    ) -> None:
        super().__init__(access, name)
        _one_of("policy", policy, tuple(map(str, Policy)))
        _one_of("overlap", overlap, ("skip", "queue"))
        _one_of("catch_up", catch_up, ("none", "latest", "all"))
        if schedule is not None and not isinstance(schedule, Schedule):
            raise TypeError(f"schedule must be an Every or a Cron, not {schedule!r}")
        if type(history) is not int or not 1 <= history <= _LONGEST:
            raise ValueError(f"history must be an integer from 1 to {_LONGEST}, not {history!r}")
        #: What is promised of each slot: ``"at-most-once"`` or ``"at-least-once"``.
        self.policy: Final[str] = policy
        #: What becomes of a call while the job is at work: ``"skip"`` or ``"queue"``.
        self.overlap: Final[Overlap] = overlap
        #: What tells the instants at which it is due; None for nothing.
        self.schedule: Final = schedule
        #: What becomes of missed slots: ``"none"``, ``"latest"`` or ``"all"``.
        self.catch_up: Final[CatchUp] = catch_up
        #: How many finished slots are kept.
        self.history: Final = history
        self._policy = Policy(policy)
        #: The schedule whose slots are all made up for; None for none.
        self._owed: Final = schedule.after if schedule and catch_up == "all" else None
        self._max_ahead = None if max_ahead is None else _ahead(max_ahead)
        self._options = AcquireOptions.of(access.settings, timeout, label, max_hold)

    # A run

    def _begin(self, slot: Slot) -> Steps[R]:
        """Acquire the job's lock and record the start of ``slot``; the run."""
        engine = self._access.engine
        ledger = yield from self._record.get()
        refuse(self.name, ledger, slot, self._policy, self._owed, is_locked=False)
        present = yield from self._present(slot)
        ticket = yield from self._acquired(slot)
        try:
            run = cast(
                "R",
                self._run_kind(
                    *(engine, ticket, self.name, slot),
                    *(self._policy, self.history, present, self._owed),
                ),
            )
            yield from run._start()
            if self._options.max_hold is not None:
                engine.limit(ticket, self._options.max_hold)
            return run
        except BaseException:
            ticket.withdraw()
            raise

    def _acquired(self, slot: Slot) -> Steps[Ticket]:
        options, waits = self._options, self.overlap == "queue"
        try:
            return (
                yield from acquisition(
                    self._access.engine,
                    {view.queue_of(self.name): Mode.EX},
                    options.timeout if waits else 0,
                    None,
                    options.label,
                    kind="job",
                    name=self.name,
                )
            )
        except AcquireTimeout:
            if waits:
                raise
            raise (yield from self._running(shown(slot))) from None

    def _running(self, slot: str) -> Steps[AlreadyRunning]:
        """The error where another one has the job's lock."""
        engine, queue = self._access.engine, view.queue_of(self.name)
        ask = partial(engine.backend.snapshot, queue, owners=True)
        there = (yield from engine.ask(ask)).contenders
        return AlreadyRunning(self.name, slot, str(there[0]) if there else "")

    def _present(self, slot: Slot) -> Steps[Present]:
        """The service's own time. Raises `FutureSlot` for an instant that lies too far ahead."""
        engine = self._access.engine
        told = yield from engine.ask(engine.backend.service_time)
        present = Present(engine, time.time() if told is None else told)
        if isinstance(slot, int):
            return present
        ahead, most = slot.timestamp() - present.now(), self._most_ahead(slot)
        if told is None:
            log.warning(
                "job %r: %s tells no time, so a slot of a host with a fast clock is not refused",
                self.name,
                engine.settings,
            )
        elif ahead > most:
            raise FutureSlot(self.name, shown(slot), ahead, most)
        return present

    def _most_ahead(self, slot: datetime) -> float:
        if self._max_ahead is not None:
            return self._max_ahead
        if self.schedule is None:
            return _AHEAD
        return interval_after(self.schedule, slot).total_seconds()

    # The record

    @property
    def _record(self) -> StoredRecord[Ledger]:
        return view.record_of(self._access.engine, self.name)

    def _change(
        self, change: Callable[[Ledger], Ledger | None], guard: Contender | None = None
    ) -> Steps[None]:
        """Write what ``change`` makes of the ledger, again until it has nothing to change."""

        def steps() -> Steps[None]:
            record = view.record_of(self._access.engine, self.name, guard)
            while True:
                changed = change((yield from record.read()))
                if changed is None or (yield from record.write(changed.encode())):
                    return

        yield from self._access.engine.bounded(steps(), "the job's record")

    def _due(self) -> Steps[tuple[Slot, ...]]:
        """The slots of the schedule that are to be run now, in order.

        - The last one up to half a minute after this host's present (half the interval, where that
          is less), unless it was started.
        - Those before it that were begun under ``"at-least-once"`` and not finished.
        - Those before it that were missed, as `catch_up` says: with ``"all"`` up to 500 of them,
          otherwise none. The others it records as skipped, in one record for those that follow each
          other, once they are late by the service's time, too. A slot is missed if it lies behind
          the floor, or behind the lowest recorded slot, and has no record.

        Raises ValueError where the job has no schedule, `NameConflict`, and `BackendUnavailable`.
        """
        if self.schedule is None:
            raise ValueError(f"job {self.name!r} has no schedule: give it one, such as Every('1h')")
        schedule, host, engine = self.schedule, time.time(), self._access.engine
        told = yield from engine.ask(engine.backend.service_time)
        at = host if told is None else told
        wanted: list[Slot] = []

        def skip(ledger: Ledger) -> Ledger | None:
            check_kind(self.name, ledger, latest(schedule, host))
            wanted[:], _ = due(ledger, schedule, host, self._policy, self.catch_up)
            # A host with a fast clock must not record what the others have yet to start.
            _, skipped = due(ledger, schedule, min(host, at), self._policy, self.catch_up)
            if not skipped:
                return None
            changed = ledger.skipped(skipped, self._policy, at, self.history)
            return None if changed == ledger else changed

        yield from self._change(skip)
        return tuple(wanted)

    def _info(self) -> Steps[JobInfo]:
        """The job as the service keeps it. Raises `BackendUnavailable`, and `BackendError`.

        The latter for a record that a newer release wrote, or another program.
        """
        engine = self._access.engine
        record = self._record
        ledger = yield from record.get()
        return (yield from engine.bounded(view.info(engine, self.name, ledger, record)))

    def _retry(self, slot: Slot) -> Steps[None]:
        """Let ``slot`` be started once more, whatever became of it. For operators.

        The next `run` of it, or `due`, starts it. Raises LookupError for a slot without a record,
        `AlreadyRunning` while the job is at work, and what `run` raises.
        """
        slot = slot_of(slot)

        def retry(ledger: Ledger) -> Ledger | None:
            check_kind(self.name, ledger, slot)
            try:
                changed = ledger.to_retry(slot)
            except LookupError:
                text = f"job {self.name!r} has no record of slot {shown(slot)}"
                raise LookupError(text) from None
            return None if changed == ledger else changed

        yield from self._while_idle(retry)

    def _reset(self) -> Steps[None]:
        """Forget all slots of the job, and its floor, so that each may be started. For operators.

        Raises `AlreadyRunning` while the job is at work, and `BackendUnavailable`.
        """
        yield from self._while_idle(lambda ledger: None if ledger == Ledger() else Ledger())

    def _while_idle(self, change: Callable[[Ledger], Ledger | None]) -> Steps[None]:
        """Make a change of the ledger while nobody is at work."""
        engine, queue = self._access.engine, view.queue_of(self.name)
        try:
            ticket = yield from acquisition(engine, {queue: Mode.EX}, 0, kind="job", name=self.name)
        except AcquireTimeout:
            raise (yield from self._running("")) from None
        problem: Exception | None = None
        try:
            # Guarded: after a pause, others may be at work.
            yield from self._change(change, ticket.contenders[0])
        except Evicted:
            problem = Evicted(self.name, kind="job")
        except Exception as error:
            problem = error
        finally:
            left = ticket.withdraw()
        yield None
        # A run that begins right after this must not find the job at work.
        yield within(engine.timers, left, engine.settings.request_timeout)
        if problem is not None:
            raise problem

    def _answer(self, refused: JobNotRun) -> None:
        """A decorated function is not called."""
        failed = isinstance(refused, AlreadyFailed)
        (log.warning if failed else log.info)("%s", refused)


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
    reset = blocking(_BaseJob[JobRun]._reset)

    def run(self, slot: Slot) -> Start:
        """Run ``slot``: a context manager, whose body is the work, or which raises `JobNotRun`.

        ``slot`` is the instant for which the run is scheduled, an aware datetime, or an integer;
        never "now". A job has slots of one kind. At the end of the block the slot is recorded as
        done, or as failed where the block raises. When the lock is lost meanwhile, ``run.lost`` is
        set, ``run.check()`` raises `LockLost`, and so does the end of the block, which then
        records nothing.

        To enter it raises `AlreadyDone` for a slot that is done, passed or skipped; `AlreadyFailed`
        for one that has failed, or was interrupted, under ``"at-most-once"``; `AlreadyRunning`
        while the job is at work, unless it queues; `FutureSlot` for an instant too far ahead of the
        service's own time; `JobBacklog`; `NameConflict` for a slot of another kind; and what
        `Lock.acquire` raises. Raises TypeError and ValueError for what is no slot.
        """
        return Start(self, slot_of(slot))

    def __call__(self, function: Callable[Concatenate[JobRun, P], T]) -> Callable[..., T | None]:
        """Decorate ``function``: call it with the slot, and it runs with the run in its place.

        The calls that do not run it return None. Raises TypeError for coroutine functions, which a
        job of `connect_async` decorates, and generators.
        """
        _DECORATED.check(function)

        @functools.wraps(function)
        def run(slot: Slot, *args: P.args, **kwargs: P.kwargs) -> T | None:
            is_begun = False
            try:
                with self.run(slot) as begun:
                    is_begun = True
                    return _DECORATED.finished(function, function(begun, *args, **kwargs))
            except JobNotRun as refused:
                if is_begun:
                    raise
                self._answer(refused)
                return None

        return run


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
    reset = awaiting(_BaseJob[AsyncJobRun]._reset)

    def run(self, slot: Slot) -> AsyncStart:
        """Run ``slot``: an async context manager, whose body is the work; see `Job.run`.

        The body is cancelled when the lock is lost, and `LockLost` raised in its place. The lock
        stays held until the body has ended, also where the body takes its time over that.
        """
        return AsyncStart(self, slot_of(slot))

    def __call__(
        self, function: Callable[Concatenate[AsyncJobRun, P], Coroutine[Any, Any, T]]
    ) -> Callable[..., Coroutine[Any, Any, T | None]]:
        """Decorate the coroutine function ``function``: see `Job.__call__`."""
        _DECORATED_COROUTINE.check(function)

        @functools.wraps(function)
        async def run(slot: Slot, *args: P.args, **kwargs: P.kwargs) -> T | None:
            is_begun = False
            try:
                async with self.run(slot) as begun:
                    is_begun = True
                    return await function(begun, *args, **kwargs)
            except JobNotRun as refused:
                if is_begun:
                    raise
                self._answer(refused)
                return None

        return run


def _one_of(what: str, value: object, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        words = ", ".join(map(repr, accepted))
        raise ValueError(f"{what} must be one of {words}, not {value!r}")


def _ahead(value: Duration) -> float:
    try:
        seconds = seconds_of(value)
    except ValueError as error:
        raise ValueError(f"max_ahead: {value!r} is not {error}") from None
    if not seconds >= 0:  # nor is NaN
        raise ValueError(f"max_ahead: {value!r} is less than 0")
    return seconds
