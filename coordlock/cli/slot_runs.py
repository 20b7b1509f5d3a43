"""`coordlock run` with a slot: the command runs once for each slot of a job."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from errno import EACCES, ENOENT
from typing import TYPE_CHECKING, Final

from coordlock.cli.child import Child, CommandFailed
from coordlock.cli.exits import Exit, complain, killed_by
from coordlock.cli.guard import Guard
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.parser import Lost, Refused, UsageError, usage_errors
from coordlock.cli.slot_options import SlotOptions
from coordlock.cli.stderr import KeptStderr
from coordlock.cli.supervision import Supervision
from coordlock.cli.terminal import Terminal
from coordlock.errors import (
    AcquireTimeout,
    AlreadyDone,
    AlreadyFailed,
    AlreadyRunning,
    JobNotRun,
)
from coordlock.settings import Settings

if TYPE_CHECKING:
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

    70 for a slot that has failed, or was interrupted, on whichever host, and is not started again.

    Raises `Refused` while the job is at work elsewhere, and `Lost` when the lock was lost.
    """
    if request.shared or request.mode or request.permits or request.trees or len(request.names) > 1:
        raise UsageError("a job takes one NAME, and no --shared, --mode, --permits or --tree")
    from coordlock.jobs.schedule import latest
    from coordlock.jobs.slots import shown

    with usage_errors():
        fixed, schedule = slots.fixed(), slots.schedule()
    if shutil.which(command[0]) is None:  # a slot is not spent on what this host lacks
        lacking = CommandFailed(command[0], EACCES if os.path.exists(command[0]) else ENOENT)
        complain(lacking)
        return lacking.status
    settings = request.settings(label=os.path.basename(command[0]))
    statuses: list[int] = []
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(KeptStderr()) if slots.keep_stderr else None
        guard = stack.enter_context(Guard())  # forks, so it comes before threads
        client = stack.enter_context(request.connected(settings))
        job = slots.job(client, request, schedule)
        if fixed is not None:
            due: list[Slot] = [fixed]
        else:
            assert schedule is not None
            # To start the latest one says why it is not due.
            due = list(job.due()) or [latest(schedule, time.time())]
        for slot in due:
            supervision: Supervision | None = None
            try:
                with (
                    job.run(slot) as run,
                    _kept(run, kept),
                    contextlib.closing(
                        Child(guard, command, stderr=kept.file if kept else 2)
                    ) as child,
                ):
                    what = f"job {run.name!r}"
                    supervision = Supervision(
                        child, run, what, grace, Terminal.open(), request.warn, on_ask
                    )
                    _supervise(supervision, request, run, settings, slots.zero_is_done)
            except (JobNotRun, AcquireTimeout) as refused:
                statuses.append(_refused(refused, request, slots))
            except ExitStatus as not_done:
                request.warn(f"job {job.name!r}: slot {shown(slot)}: {command[0]}: {not_done}")
                statuses.append(not_done.status)
            if supervision is not None:
                number = supervision.close()
                if number is not None and slot is not due[-1]:
                    statuses.append(killed_by(number))
                    break
    return next(filter(None, statuses), 0)


def _refused(error: Exception, request: LockRequest, slots: SlotOptions) -> int:
    """Say why a slot was not run here, where that is of interest; the status that it comes to.

    Raises `Refused` while the job is at work elsewhere.
    """
    is_news = isinstance(error, AlreadyFailed) and error.is_news
    if isinstance(error, AlreadyDone):  # on all hosts but one this is what should happen
        request.say(str(error))
    elif is_news or not slots.quiet_elsewhere:
        request.warn(str(error))
    if isinstance(error, AlreadyRunning | AcquireTimeout):
        raise Refused(request.conflict_exit_code) from None
    return Exit.SOFTWARE if isinstance(error, AlreadyFailed) else Exit.OK


@contextlib.contextmanager
def _kept(run: JobRun, stderr: KeptStderr | None) -> Iterator[None]:
    """Keep the end of a command's stderr with the record that it has failed."""
    if stderr is None:
        yield
        return
    from coordlock.backend import Put
    from coordlock.jobs.slots import shown
    from coordlock.jobs.view import output_key
    from coordlock.model.record import encode

    kept = bytearray()
    try:
        with stderr.passed_on() as kept:
            yield
    except BaseException:
        fields = {"slot": shown(run.slot), "stderr": kept.decode(errors="replace")}
        run._also = (Put(output_key(run._engine, run.name), encode(fields)),)
        raise


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
