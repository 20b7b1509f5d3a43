"""``coordlock hold``: a lock for a script."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from coordlock.cli.exits import Exit, killed_by
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.parser import Lost, UsageError
from coordlock.cli.signals import ENDING, Inbox
from coordlock.cli.terminal import in_background
from coordlock.cli.text import echo
from coordlock.locks.grant import Grant, GrantState
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.settings import Settings

if TYPE_CHECKING:
    from coordlock.cli.event_lines import EventLines

__all__ = ["check_stdin", "hold", "keep", "wait_for_end"]


#: How often to look, in seconds, whether the terminal listens to this process again.
_LOOK: Final = 0.5
#: No sleep is longer, in seconds: the end may be never.
_LONGEST: Final = 3600.0


def hold(*, duration: float | None, as_json: bool, **options: Any) -> int:
    """Hold the lock NAME until stdin closes or a signal comes.

    Prints the fencing token, on a line of its own, as soon as the lock is held. With --json it
    prints a line for each event: waiting, held, suspect, lost, released. The exit status is
    0, 128+N if signal N ended it, 75 if the lock was not acquired, 79 if it was lost. With -l and
    --tree it holds several locks, acquired in one step.
    """
    request = LockRequest(lines=event_lines() if as_json else None, **options)
    if duration is None:
        check_stdin("the lock would be released", "add --for, or ")
    settings = request.settings()
    with request.acquired(settings) as grant:
        return keep(request, grant, settings, duration)


def event_lines() -> EventLines:
    """What prints lines of JSON."""
    from coordlock.cli.event_lines import EventLines  # few need it

    return EventLines()


def keep(request: LockRequest, grant: Grant, settings: Settings, duration: float | None) -> int:
    """Show ``grant``, keep it until the end, and release it; the exit status.

    Raises `Lost` when the lock was lost.
    """
    with contextlib.closing(Inbox(ENDING)) as inbox:
        if (lines := request.lines) is None:
            echo(request.token(grant))
        else:
            lines.held({**request.description(grant), "backend": settings.scheme})
        number = wait_for_end(grant, inbox, duration)
        is_released = grant.release()
        if lines is not None:
            lines.flush()
    if not is_released:
        request.warn(f"{request.what} is lost: {grant.lost.reason}")
        raise Lost(ending=bool(inbox.ending))
    return killed_by(number) if number else Exit.OK


def check_stdin(at_its_end: str, instead: str = "") -> None:
    """Raise `UsageError` where stdin ends at once: what a script starts with & has /dev/null."""
    if os.path.samestat(os.fstat(0), os.stat(os.devnull)):
        raise UsageError(f"stdin is empty, so {at_its_end} at once: {instead}keep a pipe open")


def wait_for_end(grant: Grant, inbox: Inbox, duration: float | None) -> int:
    """Hold until the end, one way or another; the signal that ended it, or 0."""
    grant.on_lost(inbox.ring)
    end = None if duration is None else SYSTEM_CLOCK.now() + duration
    while grant.state is not GrantState.LOST:
        left = None if end is None else max(0.0, end - SYSTEM_CLOCK.now())
        if left is not None:
            signals, ready = inbox.wait(min(left, _LONGEST))
        elif in_background():
            signals, ready = inbox.wait(_LOOK)
        else:
            signals, ready = inbox.wait(None, 0)
        if signals:
            return signals[0]
        if left == 0 or (ready and not in_background() and not _read()):
            break
    return 0


def _read() -> bytes:
    """What came on stdin, which is not needed; empty at its end."""
    with contextlib.suppress(OSError):
        return os.read(0, 65536)
    return b""
