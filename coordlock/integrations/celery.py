"""Celery: tasks that run one at a time per key, and beats that send each slot once.

::

    app.conf.coordlock = {"url": "etcd://host1:2379,host2:2379/shop"}

    @app.task(base=LockedTask, lock="account/{account}")
    def charge(account, amount): ...

On several hosts: ``celery -A shop beat -S coordlock.integrations.celery:Scheduler``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import cache
from string import Formatter
from time import sleep
from typing import Any, ClassVar, Final, Literal

from celery import Celery, Task
from celery.beat import PersistentScheduler
from celery.schedules import crontab, schedstate, schedule
from celery.signals import worker_init
from celery.utils.log import get_logger

import coordlock
from coordlock.integrations.slots import multiple_of
from coordlock.runtime.guards import PlainFunction

__all__ = ["LockedTask", "OncePerSlot", "Scheduler", "get_client"]

logger = get_logger(__name__)
_held: Final[ContextVar[coordlock.Grant]] = ContextVar("held")
#: Between two tries to reach the lock service.
RETRY_DELAY_S: Final = 1.0
_RUN: Final = PlainFunction(
    "a LockedTask runs a function",
    "whose body would run without the lock",
    "make it a plain function that calls asyncio.run(...)",
    "make it a plain function",
)


@cache
def get_client(app: Celery) -> coordlock.Client:
    """The client of ``app.conf.coordlock``, which is a URL or a mapping that `connect` takes.

    It connects at its first use, in each process separately. Raises `ConfigurationError` where it
    is not set, or can't be used.
    """
    given: Mapping[str, Any] | str | None = app.conf.get("coordlock")
    if not given:
        raise coordlock.ConfigurationError(
            "app.conf.coordlock is not set: write "
            'app.conf.coordlock = {"url": "etcd://host1:2379,host2:2379/shop"}'
        )
    try:
        return coordlock.Client(given)
    except coordlock.ConfigurationError as error:
        error.problem = f"app.conf.coordlock: {error.problem}"
        raise


@worker_init.connect  # type: ignore[untyped-decorator]  # Celery has no types
def _import_early(sender: Any, **_: Any) -> None:
    """Import the backend before processes for tasks are forked.

    A soft time limit that struck within the import of the first task would leave it to the next.
    """
    if sender.app.conf.get("coordlock"):
        get_client(sender.app)


class LockedTask(Task):  # type: ignore[misc]  # Celery has no types
    """A task that runs under a lock: one at a time per key, in all workers.

    As ``base`` of a task, whose options are the attributes below. The lock is acquired when a
    worker starts the task, and released when it ends, however it ends. Where the process is killed,
    the lock is free once its session has expired. In a task with ``bind=True``, ``self.grant`` is
    the `Grant`, with its `token` and `check`.

    A task that is called directly or eagerly waits for the lock, and raises what acquiring raises.
    """

    #: The lock's name, in which ``{account}`` stands for that argument; None for the task's name.
    lock: ClassVar[str | None] = None
    #: What becomes of a task whose lock is busy: ``"retry"`` sends it again, any number of times,
    #: without counting these as retries, also after an outage; ``"drop"`` ends it with the result
    #: None.
    on_busy: ClassVar[str] = "retry"
    #: In how many seconds it is sent again.
    busy_countdown: ClassVar[float] = 5.0

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise ValueError for options that can't be meant, TypeError for a coroutine function."""
        super().__init_subclass__(**options)
        _RUN.check(cls.run)
        if cls.on_busy not in ("retry", "drop"):
            raise ValueError(f"on_busy must be 'retry' or 'drop', not {cls.on_busy!r}")
        parameters = inspect.signature(cls.run).parameters
        if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            return
        for _, field, _, _ in Formatter().parse(cls.lock or ""):
            if field is not None and re.split(r"[.\[]", field)[0] not in parameters:
                raise ValueError(
                    f"lock {cls.lock!r}: {field!r} is no parameter of the task; "
                    f"it has: {', '.join(parameters) or 'none'}"
                )

    @property
    def grant(self) -> coordlock.Grant:
        """The grant under which this task runs. Raises LookupError outside of one."""
        return _held.get()

    def lock_name(self, *args: Any, **kwargs: Any) -> str:
        """The name of the lock for these arguments; to be overridden where a text won't do."""
        if self.lock is None:
            return str(self.name)
        given = inspect.signature(self.run).bind(*args, **kwargs)
        given.apply_defaults()
        return self.lock.format(**{**given.arguments, **given.kwargs})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task under its lock."""
        run = super().__call__ if self.request.called_directly else self.run
        waits = self.request.called_directly or self.request.is_eager
        name = self.lock_name(*args, **kwargs)
        lock = get_client(self.app).lock(name, timeout=coordlock.DEFAULT if waits else 0)
        is_held = False
        try:
            # One statement, so that a soft time limit never strikes between grant and block.
            with lock as grant:
                is_held = True
                before = _held.set(grant)
                try:
                    return _RUN.finished(self.run, run(*args, **kwargs))
                finally:
                    _held.reset(before)
        except (coordlock.WaitError, coordlock.BackendUnavailable) as error:
            if is_held or waits:
                raise
            self._not_granted(error)
        return None

    def _not_granted(self, error: coordlock.CoordlockError) -> None:
        """Raise ``Retry`` if the task is to be sent again; otherwise it is dropped."""
        if self.on_busy == "retry":
            self.request.retries -= 1  # `retry` adds one, which is for the task's own failures
            raise self.retry(countdown=self.busy_countdown)
        if not isinstance(error, coordlock.AcquireTimeout):
            raise error  # whether another one is at it is unknown
        logger.info("%s[%s]: %s", self.name, self.request.id, error)


class OncePerSlot:
    """For schedulers of beat: several of them send each slot of each entry once.

    A mixin, to be named before a scheduler: `Scheduler` is that of Celery's own default one. Each
    beat starts the job ``beat/NAME`` of the entry for the scheduled time, as `Client.job` does. An
    entry with an interval is due at each multiple of the interval since 1970; that is its slot. A
    beat that is late sends all slots of an interval since its last one, up to the scheduler's
    ``max_interval`` ago (5 minutes by default).
    """

    #: What is promised of a slot whose beat is killed as it sends it: see `Client.job`.
    policy: ClassVar[Literal["at-most-once", "at-least-once"]] = "at-most-once"
    app: Any
    max_interval: float

    def __init__(self, app: Celery, *args: Any, lazy: bool = False, **options: Any) -> None:
        if not lazy:
            get_client(app)  # what is wrong with the configuration is said at once
        super().__init__(app, *args, lazy=lazy, **options)  # type: ignore[call-arg]  # a mixin

    def is_due(self, entry: Any) -> tuple[bool, float]:
        """Whether ``entry`` is due, and in how many seconds it is due again."""
        if not isinstance(entry.schedule, schedule):
            found: tuple[bool, float] = super().is_due(entry)  # type: ignore[misc]  # a mixin
            return found
        now, slot = entry.schedule.now(), self._slot(entry)
        is_due = slot <= now
        following = slot + entry.schedule.run_every if is_due else slot
        return schedstate(is_due, (following - now).total_seconds())  # type: ignore[no-any-return]  # Celery has no types

    def reserve(self, entry: Any) -> Any:
        """The entry for the next time. An interval counts from its slot: lateness never adds up."""
        reserved = super().reserve(entry)  # type: ignore[misc]  # a mixin
        if isinstance(entry.schedule, schedule):
            reserved.last_run_at = self._slot(entry).astimezone(entry.schedule.now().tzinfo)
        return reserved

    def apply_async(self, entry: Any, *args: Any, **options: Any) -> Any:
        """Send the task of ``entry``, unless another beat has sent that of this slot.

        While the lock service is away, nothing can be sent, so this waits for it.
        """
        slot, is_begun = self._slot(entry), False
        job = get_client(self.app).job(f"beat/{entry.name}", policy=self.policy, overlap="queue")
        while True:
            try:
                with job.run(slot):
                    is_begun = True
                    return super().apply_async(entry, *args, **options)  # type: ignore[misc]  # a mixin
            except coordlock.JobNotRun as refused:
                logger.info("not sent: %s", refused)
                return None
            except (coordlock.BackendUnavailable, coordlock.SessionLost) as error:
                if is_begun:
                    raise
                logger.warning("not sent yet: %s", error)
                sleep(RETRY_DELAY_S)

    def _slot(self, entry: Any) -> datetime:
        return slot_of(entry.schedule, entry.last_run_at, timedelta(seconds=self.max_interval))


class Scheduler(OncePerSlot, PersistentScheduler):  # type: ignore[misc]  # Celery has no types
    """``celery beat -S coordlock.integrations.celery:Scheduler``: see `OncePerSlot`."""


def slot_of(due: Any, last_run_at: datetime, patience: timedelta) -> datetime:
    """The next slot of a schedule whose last one was ``last_run_at``.

    The same on all hosts, whenever each of them has run last. A crontab passes over all slots but
    the last, an interval over those that are later than ``patience``. Raises TypeError for a
    schedule that is neither.
    """
    if isinstance(due, schedule):
        newest = multiple_of(due.run_every, due.now())
        following = multiple_of(due.run_every, last_run_at) + due.run_every
        return following if -due.run_every <= newest - following <= patience else newest
    if not isinstance(due, crontab):
        raise TypeError(f"slots are those of an interval or a crontab, not of {due!r}")
    slot = last_run_at
    while True:
        start, step, now = due.remaining_delta(slot)
        if start + step > now:
            return slot
        slot = start + step
