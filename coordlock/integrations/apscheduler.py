"""APScheduler 3: schedulers on several hosts start each job once per scheduled time.

::

    client = coordlock.Client("etcd://host1:2379,host2:2379/shop")
    scheduler = BackgroundScheduler(executors={"default": OncePerSlot(client)})
    scheduler.add_job(report, "cron", hour=3, id="report")
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.executors.base import run_job
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.triggers.combining import BaseCombiningTrigger
from apscheduler.triggers.interval import IntervalTrigger

import coordlock
from coordlock.integrations.slots import multiple_of
from coordlock.runtime.guards import PlainFunction

__all__ = ["OncePerSlot", "current_run"]

_running: Final[ContextVar[coordlock.JobRun]] = ContextVar("running")
_JOB: Final = PlainFunction(
    "a job is a function",
    "whose body would run after its slot was recorded as done",
    "give a plain function that calls asyncio.run(...)",
    "give a plain function",
)


def current_run() -> coordlock.JobRun:
    """The run under which the job at work was started: its slot, its token and `JobRun.check`.

    Raises LookupError outside of a job.
    """
    return _running.get()


class OncePerSlot(ThreadPoolExecutor):  # type: ignore[misc]  # APScheduler has no types
    """An executor of which several, in schedulers of any hosts, run each slot of a job once.

    A slot is the scheduled time; of an interval each multiple of it since 1970, which the first
    scheduler to come runs. It is a slot of the job that `Client.job` gives for the id. Where that
    job is at work, on any host, later slots are left out, as APScheduler does it in one process.

    A job needs an id, the same on all hosts, a plain function, and a trigger whose times are the
    same on all hosts: without jitter, and without an interval inside of an ``OrTrigger`` or
    ``AndTrigger``. Otherwise submitting it fails, and APScheduler logs the error that says so.

    Args:
        client: a client, which stays the caller's to close.
        max_workers: how many jobs run at once in this process.
    """

    def __init__(self, client: coordlock.Client, *, max_workers: int = 10) -> None:
        super().__init__(max_workers)
        self._client = client

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        _JOB.check(job.func)
        slots = [slot_of(job, run_time) for run_time in run_times]

        def done(future: Future[list[Any]]) -> None:
            if (error := future.exception()) is not None:
                self._run_job_error(job.id, error, error.__traceback__)
            else:
                self._run_job_success(job.id, future.result())

        self._pool.submit(self._run_all, job, run_times, slots).add_done_callback(done)

    def _run_all(
        self, job: Any, run_times: Sequence[datetime], slots: Sequence[datetime]
    ) -> list[Any]:
        """APScheduler's events, of the slots that were run here."""
        return [
            event
            for run_time, slot in zip(run_times, slots, strict=True)
            for event in self._run(job, run_time, slot)
        ]

    def _run(self, job: Any, run_time: datetime, slot: datetime) -> list[Any]:
        """The events of one slot. A failure is one of them, and later slots run all the same."""
        try:
            return self._run_once(job, run_time, slot)
        except Exception as error:
            self._logger.error("job %s, slot %s: %s", job, slot, error, exc_info=error)
            told = "".join(traceback.format_tb(error.__traceback__))
            alias = job._jobstore_alias
            return [JobExecutionEvent(EVENT_JOB_ERROR, job.id, alias, run_time, None, error, told)]

    def _run_once(self, job: Any, run_time: datetime, slot: datetime) -> list[Any]:
        def run(job: Any) -> list[Any]:
            found: list[Any] = run_job(job, job._jobstore_alias, [run_time], self._logger.name)
            return found

        if is_missed(job, run_time):
            return run(job)  # which only tells so, and leaves the slot to others
        events: list[Any] = []
        try:
            with self._client.job(job.id).run(slot) as begun:
                before = _running.set(begun)
                try:
                    events = run(_Begun(job))
                finally:
                    _running.reset(before)
                if events[0].code == EVENT_JOB_ERROR:
                    raise events[0].exception  # so that the slot is recorded as failed
        except coordlock.JobNotRun as refused:
            if not events:
                self._logger.info("%s", refused)
        except BaseException as error:
            if not events or error is not events[0].exception:
                raise
        return events


class _Begun:
    """A job whose slot is recorded as begun: it runs, however long that took."""

    misfire_grace_time = None

    def __init__(self, job: Any) -> None:
        self._job = job

    @property
    def func(self) -> Callable[..., Any]:
        """The job's function, which fails if its body is yet to run when it returns."""
        function = self._job.func
        return lambda *args, **kwargs: _JOB.finished(function, function(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    def __str__(self) -> str:
        return str(self._job)


def slot_of(job: Any, run_time: datetime) -> datetime:
    """The slot of a scheduled time. Raises ValueError where hosts would not agree on it."""
    if re.fullmatch(r"[0-9a-f]{32}", job.id):
        raise ValueError(
            f"job {job.name!r} has no id, so each scheduler would run it: write "
            f"add_job(..., id={job.name!r})"
        )
    triggers = list(_triggers_of(job.trigger))
    if any(getattr(trigger, "jitter", None) for trigger in triggers):
        raise ValueError(
            f"job {job.id!r} has jitter, so its times differ on each host: remove jitter=..., and "
            "sleep in the job"
        )
    if isinstance(job.trigger, IntervalTrigger):
        return multiple_of(job.trigger.interval, run_time)
    if any(isinstance(trigger, IntervalTrigger) for trigger in triggers):
        raise ValueError(
            f"job {job.id!r} has an interval inside of {type(job.trigger).__name__}, so its times "
            "differ on each host: write it as cron, or as a job of its own"
        )
    return run_time


def _triggers_of(trigger: Any) -> Iterator[Any]:
    """``trigger``, and those that it combines."""
    yield trigger
    if isinstance(trigger, BaseCombiningTrigger):
        for one in trigger.triggers:
            yield from _triggers_of(one)


def is_missed(job: Any, run_time: datetime) -> bool:
    """Whether APScheduler would not start the job any more, by its ``misfire_grace_time``."""
    grace = job.misfire_grace_time
    return grace is not None and datetime.now(UTC) - run_time > timedelta(seconds=grace)
