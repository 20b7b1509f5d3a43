"""`coordlock run` with a slot: the command runs once for each slot of a job."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from coordlock.cli.child import Child, CommandFailed
from coordlock.cli.connection import connected
from coordlock.cli.exits import complain
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.parser import Lost, Refused, UsageError
from coordlock.cli.slot_options import SlotOptions
from coordlock.cli.supervision import Supervision
from coordlock.cli.terminal import Terminal
from coordlock.errors import AcquireTimeout, AlreadyDone, AlreadyRunning
from coordlock.settings import Settings

if TYPE_CHECKING:
    from coordlock.jobs.run import JobRun
    from coordlock.jobs.slots import Slot

__all__ = ["run_slots"]


class ExitStatus(Exception):
    """The command has ended with another status than 0."""


def run_slots(
    request: LockRequest,
    slots: SlotOptions,
    command: tuple[str, ...],
    grace: float,
    on_ask: int | None,
) -> int:
    """Run ``command`` for each slot that is due; its first status that is not 0.

    Raises `Refused` while the job is at work elsewhere, and `Lost` when the lock was lost.
    """
    if request.shared or request.mode or request.slots or request.trees or len(request.names) > 1:
        raise UsageError("a job takes one NAME, and no --shared, --mode, --slots or --tree")
    try:
        fixed, schedule = slots.fixed(), slots.schedule()
    except ValueError as error:
        raise UsageError(str(error)) from None
    settings = request.settings(label=os.path.basename(command[0]))
    statuses: dict[Slot, int | None] = {}
    while True:
        child = Child(command)  # one for each slot, because no fork is safe after connecting
        with contextlib.closing(child), connected(settings) as client:
            request.say(f"connected to {settings}")
            job = slots.job(client, request, schedule)
            due = job.due() if fixed is None else (fixed,)
            slot = next((one for one in due if one not in statuses), None)
            if slot is None:
                break
            statuses[slot] = None
            try:
                with job.run(slot) as run, contextlib.closing(child):
                    status = _supervised(request, child, run, settings, grace, on_ask)
                    statuses[slot] = status
                    if status:
                        raise ExitStatus(status)
            except AlreadyDone as done:
                request.warn(str(done))
            except ExitStatus:
                pass
            except (AlreadyRunning, AcquireTimeout) as busy:
                request.warn(str(busy))
                raise Refused(request.conflict_exit_code) from None
        if fixed is not None:
            break
    ran = [status for status in statuses.values() if status is not None]
    if not ran:
        if not statuses:
            request.warn(f"job {request.names[0]!r}: the latest slot is done or was skipped")
        return slots.already_done_exit_code
    return next((status for status in ran if status), 0)


def _supervised(
    request: LockRequest,
    child: Child,
    run: JobRun,
    settings: Settings,
    grace: float,
    on_ask: int | None,
) -> int:
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
        complain(error)
        status = error.status
    if supervision.lost:
        raise Lost
    return status
