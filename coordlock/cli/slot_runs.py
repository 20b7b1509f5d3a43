"""`coordlock run` with a slot: the command runs once for each slot of a job."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from errno import EACCES, ENOENT
from typing import TYPE_CHECKING, Final, NoReturn

from coordlock.cli.child import Child, CommandFailed
from coordlock.cli.connection import connected
from coordlock.cli.exits import Exit, complain, killed_by
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.parser import Lost, Refused, UsageError
from coordlock.cli.signals import Inbox
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

#: The slots that are left, and the statuses so far, for the program that goes on with them.
_LEFT: Final = "COORDLOCK_SLOTS_LEFT"


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
    if request.shared or request.mode or request.slots or request.trees or len(request.names) > 1:
        raise UsageError("a job takes one NAME, and no --shared, --mode, --slots or --tree")
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
    due, statuses = _left()
    settings = request.settings(label=os.path.basename(command[0]))
    child = Child(command)  # before connecting, because that starts threads
    with contextlib.closing(child), connected(settings) as client:
        request.say(f"connected to {settings}")
        job = slots.job(client, request, schedule)
        if fixed is not None:
            due = [fixed]
        elif due is None:
            assert schedule is not None
            newest = latest(schedule, time.time())
            due = list(job.due())
            if not due and _is_skipped(job, newest):
                request.warn(str(AlreadyDone(job.name, shown(newest), "skipped", "")))
                return slots.already_done_exit_code
            due = due or [newest]  # to start it says why it is not due
        slot = due.pop(0)
        try:
            with job.run(slot) as run, contextlib.closing(child):
                _supervise(request, child, run, settings, grace, on_ask, slots.zero_is_done)
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
    if due:
        ending = _signals()
        if not ending:
            _go_on(due, statuses)
        statuses.append(killed_by(min(ending)))
    if not statuses:
        return slots.already_done_exit_code
    return next(filter(None, statuses), 0)


def _signals() -> set[int]:
    """The signals that have asked to end, also those that came after the command's end."""
    if Inbox.newest is None:
        return set()
    Inbox.newest.wait(0)
    return Inbox.newest.ending


def _left() -> tuple[list[Slot] | None, list[int]]:
    """The slots that are left and the statuses so far, where this program goes on with them."""
    from coordlock.jobs.slots import loaded

    if (text := os.environ.pop(_LEFT, None)) is None:
        return None, []
    slots, statuses = json.loads(text)
    return [loaded(one) for one in slots], statuses


def _go_on(due: Sequence[Slot], statuses: list[int]) -> NoReturn:
    """Become this program again, for the slots in ``due``.

    It has threads by now, so it could not fork the next command safely, and signals have come to a
    supervision that is over.
    """
    from coordlock.jobs.slots import stored

    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[_LEFT] = json.dumps([[stored(one) for one in due], statuses])
    os.execv(sys.executable, sys.orig_argv)


def _is_skipped(job: Job, slot: Slot) -> bool:
    """Whether ``slot``, which is not due, was left out: it is not at work, and has not ended."""
    info = job.info()
    if info.floor is not None and slot <= info.floor:  # type: ignore[operator]
        return False
    return not any(one.slot == slot and one.state != "skipped" for one in info.slots)


def _supervise(
    request: LockRequest,
    child: Child,
    run: JobRun,
    settings: Settings,
    grace: float,
    on_ask: int | None,
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
    supervision = Supervision(
        child, run, f"job {run.name!r}", grace, Terminal.open(), request.warn, on_ask
    )
    try:
        status = supervision.run(environment)
    except CommandFailed as error:
        raise ExitStatus(error.status, str(error)) from None
    if supervision.lost:
        raise Lost("the lock was lost, or about to be")
    if status:
        raise ExitStatus(status, f"status {status}")
    number = supervision.told_to_end
    if number is not None and not zero_is_done:
        name = signal.Signals(number).name
        raise ExitStatus(killed_by(number), f"status 0, but told to end by {name}")
