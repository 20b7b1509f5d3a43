"""``coordlock jobs``: what the service remembers of jobs, and how operators change that."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from coordlock.cli.confirm import confirm
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain
from coordlock.cli.parser import UsageError
from coordlock.cli.table import print_table
from coordlock.cli.text import echo
from coordlock.errors import AlreadyRunning
from coordlock.jobs.slots import parsed, shown

if TYPE_CHECKING:
    from coordlock.jobs.view import JobInfo, SlotInfo

__all__ = ["jobs", "reset", "retry", "show"]


def jobs(*, service: Service, as_json: bool) -> int:
    """List jobs, show their slots, and let slots start again.

    `coordlock run` with --slot, --every or --cron runs the slots of a job, and so do programs.
    """
    with service.connected() as client:
        found = client.admin.jobs()
    if as_json:
        echo(json.dumps([_document(one) for one in found]))
        return Exit.OK
    if not found:
        complain("there is no job")
        return Exit.OK
    rows: list[dict[str, object]] = []
    for one in found:
        last = one.slots[-1] if one.slots else None
        rows.append(
            {
                "NAME": one.name,
                "SLOTS": len(one.slots),
                "LAST SLOT": last and shown(last.slot),
                "STATE": one.problem or (last and last.state),
            }
        )
    print_table(rows)
    return Exit.OK


def show(*, name: str, service: Service, as_json: bool) -> int:
    """Show the slots of the job NAME.

    The exit status is 1 if nothing is known of it.
    """
    with service.connected() as client:
        found = client.job(name).info()
    if as_json:
        echo(json.dumps(_document(found)))
    elif not found.slots:
        complain(f"nothing is known of a job {name!r}")
    else:
        if found.floor is not None:
            echo(f"floor: {shown(found.floor)}: earlier slots are passed")
        print_table(
            [
                {
                    "SLOT": _row(one),
                    "STATE": one.state,
                    "ATTEMPTS": one.attempts,
                    "OWNER": one.owner,
                    "STARTED": _short(one.started),
                    "FINISHED": _short(one.finished),
                    "ERROR": one.error,
                }
                for one in found.slots
            ]
        )
    return Exit.OK if found.slots else Exit.FAILED


def retry(*, name: str, slot: str, service: Service) -> int:
    """Let SLOT of the job NAME start once more.

    The next start of the slot runs it, whether it was done, failed or skipped before. The exit
    status is 1 if the slot is not known, or the job is at work.
    """
    try:
        which = parsed(slot)
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        with service.connected() as client:
            client.job(name).retry(which)
    except (LookupError, AlreadyRunning) as error:
        complain(error.args[0] if isinstance(error, LookupError) else error)
        return Exit.FAILED
    return Exit.OK


def reset(*, name: str, service: Service, yes: bool) -> int:
    """Forget all slots of the job NAME, so that each may start again.

    The exit status is 1 if the job is at work.
    """
    try:
        with service.connected() as client:
            confirm(f"Forget which slots of the job {name!r} were run?", yes=yes)
            client.job(name).reset()
    except AlreadyRunning as busy:
        complain(busy)
        return Exit.FAILED
    return Exit.OK


def _document(job: JobInfo) -> dict[str, Any]:
    return {
        "name": job.name,
        "kind": job.kind,
        "floor": None if job.floor is None else shown(job.floor),
        "slots": [_slot(one) for one in job.slots],
        "problem": job.problem,
    }


def _slot(slot: SlotInfo) -> dict[str, Any]:
    return {
        "slot": shown(slot.slot),
        "state": slot.state,
        "policy": slot.policy,
        "attempts": slot.attempts,
        "owner": slot.owner,
        "token": slot.token,
        "started": None if slot.started is None else shown(slot.started),
        "finished": None if slot.finished is None else shown(slot.finished),
        "error": slot.error,
        "first": None if slot.first is None else shown(slot.first),
        "count": slot.count,
    }


def _row(slot: SlotInfo) -> str:
    if slot.first is None:
        return shown(slot.slot)
    return f"{shown(slot.first)} to {shown(slot.slot)} ({slot.count})"


def _short(instant: datetime | None) -> str:
    return "" if instant is None else shown(instant.replace(microsecond=0))
