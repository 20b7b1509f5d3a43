"""``coordlock run``: a command under a lock."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from coordlock.cli.child import Child, CommandFailed
from coordlock.cli.exits import complain
from coordlock.cli.guard import Guard
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.parser import Lost
from coordlock.cli.slot_options import SlotOptions
from coordlock.cli.supervision import Supervision
from coordlock.cli.terminal import Terminal
from coordlock.locks.grant import Grant
from coordlock.settings import DEFAULT, Settings

__all__ = ["run", "supervise"]


def run(*, command: tuple[str, ...], grace: float, on_ask: int | None, **options: Any) -> int:
    """Hold the lock NAME while COMMAND runs.

    COMMAND finds COORDLOCK_NAME, COORDLOCK_TOKEN and COORDLOCK_BACKEND in its environment. -- may
    be left out if COMMAND does not begin with a dash. Write OPTIONS before COMMAND. The exit status
    is COMMAND's, 128+N if signal N ended it, 75 if the lock was not acquired, 79 if it was lost:
    then coordlock first ends COMMAND and its process group.

    With -l and --tree it holds several locks, acquired in one step, so that such commands never
    deadlock. COMMAND finds COORDLOCK_TOKENS, too: a JSON object of the tokens by name.

    With --slot, --every or --cron, NAME is a job, and COMMAND runs once for each slot, on whichever
    host starts it. COMMAND finds COORDLOCK_SLOT and COORDLOCK_ATTEMPT, too.
    """
    slots = SlotOptions(**{name: options.pop(name) for name in SlotOptions.__annotations__})
    request = LockRequest(**options)
    if slots.are_given:
        from coordlock.cli.slot_runs import run_slots  # it costs others a moment at each start

        return run_slots(request, slots, command, grace, on_ask)
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
