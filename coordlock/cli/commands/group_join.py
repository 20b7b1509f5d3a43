"""``coordlock group join``: a command that is a member of a group."""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from coordlock.cli.child import Child, CommandFailed
from coordlock.cli.commands.hold import check_stdin, wait_for_end
from coordlock.cli.data import given
from coordlock.cli.exits import Exit, complain, killed_by
from coordlock.cli.guard import Guard
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.parser import usage_errors
from coordlock.cli.signals import ENDING, Inbox
from coordlock.cli.supervision import Supervision
from coordlock.cli.terminal import Terminal
from coordlock.locks.grant import Grant, GrantState

__all__ = ["join"]


class _Staying:
    """A membership as a supervisor sees it: its loss ends no command, because it begins again."""

    state = GrantState.HELD

    def check(self) -> None:
        """Nothing: it is never lost."""

    def on_lost(self, callback: Callable[..., None]) -> None:
        """Never calls it."""

    def remaining(self) -> float:
        """For ever."""
        return math.inf


_STAYING: Final = cast("Grant", _Staying())


def join(*, name: str, command: tuple[str, ...], value: str | None, **options: Any) -> int:
    """Be a member of the group NAME while COMMAND runs.

    COMMAND finds COORDLOCK_NAME and COORDLOCK_BACKEND in its environment. After an outage that ends
    the membership, coordlock joins again, and COMMAND continues. The exit status is COMMAND's. When
    coordlock itself is killed, COMMAND is ended too, so that no server runs unlisted.

    Without COMMAND, it is a member until stdin closes or a signal comes.
    """
    from coordlock.locks.publishing import check_value

    known_by = f"{socket.gethostname()}:{os.getpid()}" if value is None else value
    with usage_errors():
        published = check_value(given(known_by))
    request = LockRequest([name], **options)
    if not command:
        check_stdin("the group would be left")
        with (
            request.connected(request.settings()) as client,
            client.group(name).keep_joined(published),
        ):
            number = wait_for_end(_STAYING, Inbox(ENDING), None)
        return killed_by(number) if number else Exit.OK
    with Guard() as guard:  # forks, so it comes before the threads of a client
        settings = request.settings(label=os.path.basename(command[0]))
        variables = {"COORDLOCK_NAME": name, "COORDLOCK_BACKEND": settings.scheme}
        with (
            request.connected(settings) as client,
            client.group(name).keep_joined(published),
            contextlib.closing(Child(guard, command)) as child,
        ):
            supervision = Supervision(
                child, _STAYING, f"group {name!r}", 0.0, Terminal.open(), complain
            )
            try:
                return supervision.run(variables)
            except CommandFailed as error:
                complain(error)
                return error.status
