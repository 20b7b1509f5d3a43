"""`coordlock run` with a slot: the command runs once for each slot of a job."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from errno import EACCES, ENOENT
from typing import TYPE_CHECKING, Final

from coordlock.cli.child import Child, CommandFailed
from coordlock.cli.connection import connected
from coordlock.cli.exits import Exit, complain, killed_by
from coordlock.cli.guard import Guard
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.parser import Lost, Refused, UsageError
from coordlock.cli.slot_options import SlotOptions
from coordlock.cli.supervision import Supervision
from coordlock.cli.terminal import Terminal
from coordlock.errors import AcquireTimeout, AlreadyDone, AlreadyFailed, AlreadyRunning
from coordlock.settings import Settings

if TYPE_CHECKING:
    from coordlock.jobs.job import Job
    from coordlock.jobs.run import JobRun
    from coordlock.jobs.slots import Slot

__all__ = ["run_slots"]


class ExitStatus(Exception):
    """The command has not done the slot; ``status`` is that to end with."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text or status)
        self.status: Final = status


def run_slots(
    request: LockRequest,
    slots: SlotOptions,
    command: tuple[str, ...],
    grace: float,
    on_ask: int | None,
) -> int:
    """Run ``command`` for each slot that is due; its first status that is not 0.

    70 for a slot that failed before, on whichever host, and is started at most once.

    Raises `Refused` while the job is at work elsewhere, and `Lost` when the lock was lost.
    """
    if request.shared or request.mode or request.permits or request.trees or len(request.names) > 1:
        raise UsageError("a job takes one NAME, and no --shared, --mode, --permits or --tree")
    from coordlock.jobs.schedule import latest
    from coordlock.jobs.slots import shown

    try:
        fixed, schedule = slots.fixed(), slots.schedule()
    except ValueError as error:
        raise UsageError(str(error)) from None
    if shutil.which(command[0]) is None:  # a slot is not spent on what this host lacks
        lacking = CommandFailed(command[0], EACCES if os.path.exists(command[0]) else ENOENT)
        complain(lacking)
        return lacking.status
    settings = request.settings(label=os.path.basename(command[0]))
    statuses: list[int] = []
    with Guard() as guard, connected(settings) as client:  # forks, so it comes before threads
        request.say(f"connected to {settings}")
        job = slots.job(client, request, schedule)
        if fixed is not None:
            due: list[Slot] = [fixed]
        else:
            assert schedule is not None
            newest = latest(schedule, time.time())
            due = list(job.due())
            if not due and _is_skipped(job, newest):
                request.warn(str(AlreadyDone(job.name, shown(newest), "skipped", "")))
                return slots.already_done_exit_code
            due = due or [newest]  # to start it says why it is not due
        for slot in due:
            supervision: Supervision | None = None
            try:
                with job.run(slot) as run, contextlib.closing(Child(guard, command)) as child:
                    what = f"job {run.name!r}"
                    supervision = Supervision(
                        child, run, what, grace, Terminal.open(), request.warn, on_ask
                    )
                    _supervise(supervision, request, run, settings, slots.zero_is_done)
                    statuses.append(0)
            except AlreadyDone as done:
                # On all hosts but one this is what should happen.
                (request.say if done.state == "done" else request.warn)(str(done))
            except AlreadyFailed as failed:
                request.warn(str(failed))
                statuses.append(Exit.SOFTWARE)
            except ExitStatus as not_done:
                request.warn(f"job {job.name!r}: slot {shown(slot)}: {command[0]}: {not_done}")
                statuses.append(not_done.status)
            except (AlreadyRunning, AcquireTimeout) as busy:
                request.warn(str(busy))
                raise Refused(request.conflict_exit_code) from None
            if supervision is not None:
                number = supervision.close()
                if number is not None and slot is not due[-1]:
                    statuses.append(killed_by(number))
                    break
    if not statuses:
        return slots.already_done_exit_code
    return next(filter(None, statuses), 0)


def _is_skipped(job: Job, slot: Slot) -> bool:
    """Whether ``slot``, which is not due, was left out: it is not at work, and has not ended."""
    info = job.info()
    if info.floor is not None and slot <= info.floor:  # type: ignore[operator]
        return False
    return not any(one.slot == slot and one.state != "skipped" for one in info.slots)


def _supervise(
    supervision: Supervision,
    request: LockRequest,
    run: JobRun,
    settings: Settings,
    zero_is_done: bool,
) -> None:
    """Run the command. Raises `ExitStatus` where the slot is not done then, and `Lost`."""
    from coordlock.jobs.slots import shown

    request.say(f"running slot {shown(run.slot)} of job {run.name!r}, token {run.token}")
    environment = {
        "COORDLOCK_NAME": run.name,
        "COORDLOCK_TOKEN": str(run.token),
        "COORDLOCK_BACKEND": settings.scheme,
        "COORDLOCK_SLOT": shown(run.slot),
        "COORDLOCK_ATTEMPT": str(run.attempt),
    }
    try:
        status = supervision.run(environment)
    except CommandFailed as error:
        raise ExitStatus(error.status, str(error)) from None
    if supervision.lost:
        raise Lost
    if status:
        raise ExitStatus(status, f"status {status}")
    number = supervision.told_to_end
    if number is not None and not zero_is_done:
        name = signal.Signals(number).name
        raise ExitStatus(killed_by(number), f"status 0, but told to end by {name}")
