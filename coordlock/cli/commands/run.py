"""``coordlock run``: a command under a lock."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from coordlock.cli.child import Child, CommandFailed
from coordlock.cli.exits import complain
from coordlock.cli.guard import Guard
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.options import (
    acquire_options,
    grace_option,
    max_hold_option,
    name_arguments,
    on_ask_option,
    slot_options,
)
from coordlock.cli.parser import Lost, Parser, did_you_mean
from coordlock.cli.slot_options import SlotOptions
from coordlock.cli.supervision import Supervision
from coordlock.cli.terminal import Terminal
from coordlock.locks.grant import Grant
from coordlock.settings import DEFAULT, Settings

__all__ = ["parser", "run", "supervise"]


class _Run(Parser):
    def call(self, words: Sequence[str], inherited: Mapping[str, object]) -> int:
        """Keep what belongs to COMMAND from being taken for an option of ours."""
        own, command = self.split(words, 0)
        arguments = vars(self.parsed(own))
        if not arguments["locks"] and not arguments["trees"]:
            own, command = self.split(words, 1)
            arguments = vars(self.parsed(own))
        if not command:
            self.error("there is no COMMAND: run NAME [OPTIONS] -- COMMAND")
        return self.act({**arguments, "command": tuple(command)}, inherited)

    def refuse(self, word: str) -> NoReturn:
        """An option that is not ours."""
        if word in ("-c", "--command"):  # those of flock(1)
            self.error(f"run has no {word}: for a shell, write -- sh -c 'COMMAND'")
        if word[:2] == "-w" or word == "--wait":
            self.error(f"run has no {word[:2] if word[1] != '-' else word}: write --timeout")
        near = did_you_mean(word, self._options, after=" Otherwise ")
        self.error(f"run has no {word}: {near}write -- before a COMMAND that begins with a dash")


def parser() -> Parser:
    """Its parser."""
    parser = _Run(
        "coordlock run",
        run,
        usage="NAME [OPTIONS] [--] COMMAND...\n"
        "       coordlock run -l NAME -l NAME... [OPTIONS] [--] COMMAND...",
        example="coordlock run nightly --timeout 10m -- ./migrate.sh --fast",
    )
    parser.has_rest = True
    name_arguments(parser)
    acquire_options(parser)
    max_hold_option(parser)
    grace_option(parser)
    on_ask_option(parser)
    slot_options(parser)
    return parser.finished()


def run(
    *,
    name: str | None,
    command: tuple[str, ...],
    grace: float,
    on_ask: int | None,
    slots_of_job: SlotOptions,
    **options: Any,
) -> int:
    """Hold the lock NAME while COMMAND runs.

    COMMAND finds COORDLOCK_NAME, COORDLOCK_TOKEN and COORDLOCK_BACKEND in its environment. -- may
    be left out if COMMAND does not begin with a dash. Write OPTIONS before COMMAND. The exit status
    is COMMAND's, 128+N if signal N ended it, 75 if the lock was not acquired, 79 if it was lost:
    then coordlock first ends COMMAND and all that it started.

    With -l and --tree it holds several locks, acquired in one step, so that such commands never
    deadlock. COMMAND finds COORDLOCK_TOKENS, too: a JSON object of the tokens by name.

    With --slot, --every or --cron, NAME is a job, and COMMAND runs once for each slot, on whichever
    host starts it. COMMAND finds COORDLOCK_SLOT and COORDLOCK_ATTEMPT, too.
    """
    request = LockRequest(name=name, **options)
    if slots_of_job.are_given:
        from coordlock.cli.slot_runs import run_slots  # it costs others a moment at each start

        return run_slots(request, slots_of_job, command, grace, on_ask)
    return _run_under(request, command, grace, on_ask)


def _run_under(
    request: LockRequest, command: tuple[str, ...], grace: float, on_ask: int | None
) -> int:
    """Acquire what ``request`` asks for, and hold it while ``command`` runs; the exit status.

    ``on_ask`` is the signal that the command gets when somebody asks for the lock; None for none.
    Raises `Lost` when the lock was lost: then the command has ended.
    """
    with Guard() as guard:  # forks, so it comes before the threads of a client
        settings = request.settings(label=os.path.basename(command[0]))
        with request.acquired(settings) as grant:
            return supervise(request, Child(guard, command), grant, settings, grace, on_ask)


def supervise(
    request: LockRequest,
    child: Child,
    grant: Grant,
    settings: Settings,
    grace: float,
    on_ask: int | None,
) -> int:
    """Run ``child`` while ``grant`` is held, then release it; the exit status.

    Raises `Lost` when the lock was lost: then the command has ended.
    """
    with contextlib.closing(child):  # before the lock is released
        supervision = Supervision(
            child, grant, request.what, grace, Terminal.open(), request.warn, on_ask
        )
        try:
            status = supervision.run(request.environment(grant, settings))
        except CommandFailed as error:
            complain(error)
            status = error.status
    released = grant.release(0.5 if supervision.lost else DEFAULT)
    if not released and not supervision.lost:
        reason = grant.lost.reason
        request.warn(f"{request.what} was lost before the command ended: {reason}")
    if not released or supervision.lost:
        raise Lost(ending=supervision.close() is not None)
    request.say(f"released {request.what}, status {status}")
    return status
