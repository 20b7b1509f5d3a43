"""``coordlock jobs``: what the service remembers of jobs, and how operators change that."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from coordlock.cli.confirm import check_terminal, confirm
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain
from coordlock.cli.options import json_option, service_options
from coordlock.cli.parser import Group, Parser, UsageError
from coordlock.cli.table import print_table
from coordlock.cli.text import echo
from coordlock.errors import AlreadyRunning
from coordlock.jobs.slots import parsed, shown

if TYPE_CHECKING:
    from coordlock.jobs.view import JobInfo, SlotInfo

__all__ = ["parser"]

_COMMANDS: Final = {
    "show": "Show the slots of the job NAME.",
    "retry": "Let SLOT of the job NAME start once more.",
    "reset": "Forget all slots of the job NAME, so that each may start again.",
}


def parser() -> Group:
    """The parser of the group."""
    group = Group(
        "coordlock jobs",
        _jobs,
        usage="[OPTIONS] | COMMAND [ARGS]...",
        commands=_COMMANDS,
        load=_load,
        example="coordlock jobs show nightly",
    )
    service_options(group)
    json_option(group)
    return group.finished()


def _load(name: str) -> Parser:
    return {"show": _show_parser, "retry": _retry_parser, "reset": _reset_parser}[name]()


def _jobs(*, service: Service, as_json: bool) -> int:
    """List jobs, show their slots, and let slots start again.

    `coordlock run` with --slot, --every or --cron runs the slots of a job, and so do programs.
    """
    with service.connected() as client:
        found = client.admin.jobs()
    if as_json:
        echo(json.dumps([_document(one) for one in found]))
        return Exit.OK
    rows = []
    for one in found:
        last = one.slots[-1] if one.slots else None
        state = one.problem or ("" if last is None else last.state)
        rows.append([one.name, len(one.slots), "" if last is None else shown(last.slot), state])
    print_table(("NAME", "SLOTS", "LAST SLOT", "STATE"), rows, texts=("NAME", "STATE"))
    return Exit.OK


def _show_parser() -> Parser:
    parser = Parser(
        "coordlock jobs show", _show, usage="[OPTIONS] NAME", example="coordlock jobs show nightly"
    )
    parser.argument("name", metavar="NAME")
    service_options(parser)
    json_option(parser)
    return parser.finished()


def _show(*, name: str, service: Service, as_json: bool) -> int:
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
            ("SLOT", "STATE", "ATTEMPTS", "OWNER", "STARTED", "FINISHED", "ERROR"),
            [
                [
                    *(_row(one), one.state, one.attempts, one.owner),
                    *(_short(one.started), _short(one.finished), one.error or ""),
                ]
                for one in found.slots
            ],
            texts=("OWNER", "ERROR"),
        )
    return Exit.OK if found.slots else Exit.FAILED


def _retry_parser() -> Parser:
    parser = Parser(
        "coordlock jobs retry",
        _retry,
        usage="[OPTIONS] NAME SLOT",
        example="coordlock jobs retry nightly 2026-11-22T02:00Z",
    )
    parser.argument("name", metavar="NAME")
    parser.argument("slot", metavar="SLOT")
    service_options(parser)
    return parser.finished()


def _retry(*, name: str, slot: str, service: Service) -> int:
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


def _reset_parser() -> Parser:
    parser = Parser(
        "coordlock jobs reset",
        _reset,
        usage="[OPTIONS] NAME",
        example="coordlock jobs reset nightly --yes",
    )
    parser.argument("name", metavar="NAME")
    service_options(parser)
    parser.flag("--yes", dest="is_sure", help="Do not ask.")
    return parser.finished()


def _reset(*, name: str, service: Service, is_sure: bool) -> int:
    """Forget all slots of the job NAME, so that each may start again.

    The exit status is 1 if the job is at work.
    """
    if not is_sure:
        check_terminal()
        confirm(f"Forget which slots of the job {name!r} were run?")
    try:
        with service.connected() as client:
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
