"""``coordlock jobs``: what the service remembers of jobs, and how operators change that."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain
from coordlock.cli.job_health import health_of, present_of, stderr_of
from coordlock.cli.parser import usage_errors
from coordlock.cli.table import print_table
from coordlock.cli.text import echo, printable
from coordlock.errors import AlreadyRunning, CoordlockError
from coordlock.jobs.slots import parsed, shown, stored

if TYPE_CHECKING:
    from coordlock.jobs.view import JobInfo

__all__ = ["check", "jobs", "retry", "show"]

#: What `jobs check` finds, by its exit status.
_STATES: Final = ("ok", "late", "failed", "unreachable")


def jobs(*, service: Service, as_json: bool) -> int:
    """List jobs, check them, and let their slots start again.

    `coordlock run` with --slot, --every or --cron runs the slots of a job, and so do programs.
    """
    with service.connected() as client:
        found = client.admin.jobs()
    if as_json:
        echo(json.dumps([_document(job) for job in found]))
        return Exit.OK
    if not found:
        complain("there is no job")
        return Exit.OK
    rows: list[dict[str, object]] = []
    for job in found:
        last = job.slots[-1] if job.slots else None
        rows.append(
            {
                "NAME": job.name,
                "SLOTS": len(job.slots),
                "LAST SLOT": last and shown(last.slot),
                "STATE": job.problem or (last and last.state),
            }
        )
    print_table(rows)
    return Exit.OK


def check(*, name: str, max_age: float | None, service: Service, as_json: bool) -> int:
    """Check whether the job NAME does its work, for a monitoring system.

    It prints one line. The exit status is 0 if all is well; 1 if the job is late: no slot was done
    within --max-age, or no host has started the next slot of its --every or --cron, five minutes
    after its time; 2 if its last slot has failed or was interrupted; 3 if this is not known.
    """
    last_line = ""
    try:
        with service.connected() as client:
            limit = None if max_age is None else timedelta(seconds=max_age)
            health = health_of(client.job(name).info(), present_of(client), limit)
            state, text = str(health.state), health.text
            if state == "failed" and (kept := stderr_of(client, name)) is not None:
                last_line = kept["stderr"].rstrip().rpartition("\n")[2]
    except (CoordlockError, OSError) as error:
        state, text = "unreachable", str(error)
    if as_json:
        echo(json.dumps({"name": name, "state": state, "text": text, "stderr": last_line}))
    else:
        end = f": {last_line}" if last_line else ""
        echo(printable(f"{state}: job {name!r}: {text}{end}"))
    return _STATES.index(state)


def show(*, name: str, service: Service, as_json: bool) -> int:
    """Show the slots of the job NAME.

    The exit status is 1 if nothing is known of it.
    """
    with service.connected() as client:
        found, kept = client.job(name).info(), stderr_of(client, name)
    if as_json:
        echo(json.dumps({**_document(found), "stderr": kept}))
    elif not found.slots:
        complain(f"nothing is known of a job {name!r}")
    else:
        if found.floor is not None:
            echo(f"floor: {shown(found.floor)}: earlier slots have passed")
        print_table(
            [
                {
                    "SLOT": shown(slot.slot),
                    "STATE": slot.state,
                    "ATTEMPTS": slot.attempts,
                    "OWNER": slot.owner,
                    "STARTED": _short(slot.started),
                    "FINISHED": _short(slot.finished),
                    "ERROR": slot.error,
                }
                for slot in found.slots
            ]
        )
        if kept is not None:
            echo(f"the end of stderr in slot {kept['slot']}, which failed:")
            for line in kept["stderr"].splitlines():
                echo(f"  {printable(line)}")
    return Exit.OK if found.slots else Exit.FAILED


def retry(*, name: str, slot: str, service: Service) -> int:
    """Let SLOT of the job NAME start once more.

    The next start of the slot runs it, whether it was done or has failed. The exit status is 1 if
    the slot is not known, or the job is at work.
    """
    with usage_errors():
        which = parsed(slot)
    try:
        with service.connected() as client:
            client.job(name).retry(which)
    except (LookupError, AlreadyRunning) as error:
        complain(error.args[0] if isinstance(error, LookupError) else error)
        return Exit.FAILED
    return Exit.OK


def _document(job: JobInfo) -> dict[str, Any]:
    return {
        "name": job.name,
        "kind": job.kind,
        "floor": None if job.floor is None else shown(job.floor),
        "next": stored(job.next),
        "slots": [{**slot.encode(), "slot": shown(slot.slot)} for slot in job.slots],
        "problem": job.problem,
    }


def _short(instant: datetime | None) -> str:
    return "" if instant is None else shown(instant.replace(microsecond=0))
