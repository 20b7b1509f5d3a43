"""The command as a process group, which the guard starts and watches over."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import queue
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from coordlock.cli.exits import Exit, killed_by
from coordlock.cli.guard import Guard, Message

__all__ = ["Change", "Child", "CommandFailed", "Unguarded"]


class CommandFailed(Exception):
    """The command could not be executed; ``status`` is the one that shells use for it."""

    def __init__(self, command: str, error: int) -> None:
        super().__init__(f"{command}: {os.strerror(error)}")
        self.status = Exit.NOT_FOUND if error == errno.ENOENT else Exit.NOT_EXECUTABLE


class Unguarded(CommandFailed):
    """The guard was killed: no command can be started any more, nor may one go on."""

    def __init__(self) -> None:
        Exception.__init__(
            self, "the process that starts commands, coordlock's guard, was killed: start again"
        )
        self.status = Exit.IO_ERROR


@dataclass(eq=False, repr=False)
class Change:
    """What happened to the command: it stopped by a signal, or it ended with a status."""

    stopped: int | None = None
    status: int | None = None


class Child:
    """One run of a command: a process group with the terminal, files and limits of this process.

    Args:
        guard: starts it, and kills it when this process can't.
        command: the program and its arguments.
        stdin: what the command reads; None for what this process would read.
        stderr: the file that is its stderr, one that was open when the guard was made.
    """

    def __init__(
        self, guard: Guard, command: Sequence[str], stdin: bytes | None = None, stderr: int = 2
    ) -> None:
        self.command: Final = tuple(command)
        #: The number of the process group, and of the command's own process; 0 before the start.
        self.group = 0
        #: Whether the guard had to kill it: this process had not extended the deadline.
        self.was_late = False
        self._guard: Final = guard
        self._stdin: Final = stdin
        self._stderr: Final = stderr
        self._number: int | None = None
        self._reports: Final[queue.SimpleQueue[Message]] = queue.SimpleQueue()
        self._has_ended = False
        self._is_dismissed = False

    def start(
        self,
        environment: Mapping[str, str],
        deadline: float,
        *,
        foreground: bool = False,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """Execute the command, with ``environment`` added to this process's.

        It may work until ``deadline`` on the clock of coordlock's leases. With ``foreground`` it
        gets the terminal before it runs. ``wake`` is called, in a thread, when `change` has news.
        Raises `CommandFailed`.
        """

        def receive(report: Message) -> None:
            self._reports.put(report)
            if wake is not None:
                wake()

        self._number = self._guard.start(
            receive,
            deadline,
            command=self.command,
            environment=dict(environment),
            stdin=None if self._stdin is None else base64.b64encode(self._stdin).decode(),
            stderr=self._stderr,
            foreground=foreground,
        )
        self._take(self._reports.get())

    def extend(self, deadline: float) -> None:
        """It may work until ``deadline`` on the clock of coordlock's leases."""
        self._send(deadline=deadline)

    def change(self) -> Change | None:
        """The next thing that has happened; None where nothing has.

        Raises `CommandFailed`, also where the guard has died.
        """
        while not self._reports.empty():
            if (change := self._take(self._reports.get())) is not None:
                return change
        return None

    def send(self, number: int) -> bool:
        """Signal the whole group; whether there still is one."""
        if not self.group:
            return False
        try:
            os.killpg(self.group, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # a member changed its user; the others got it
        return True

    def has_members(self) -> bool:
        """Whether a process of the group is left, the command itself or what it started.

        While there is one the group's number cannot be used for another.
        """
        return self.send(0)

    def dismiss(self, *, kill: bool = False) -> None:
        """End the watch; ``kill`` ends the command and its group, too. Idempotent."""
        if self._number is None or self._is_dismissed:
            return
        self._send(dismiss=True, kill=kill)
        while not self._is_dismissed:
            with contextlib.suppress(CommandFailed):
                self._take(self._reports.get())

    def close(self) -> None:
        """End the command, if it has not ended, and what it started. Idempotent."""
        self.dismiss(kill=not self._has_ended)

    def _send(self, **order: Any) -> None:
        assert self._number is not None, "before the start"
        self._guard.send(self._number, **order)

    def _take(self, report: Message) -> Change | None:
        match report:
            case {"started": int(group)}:
                self.group = group
            case {"failed": int(error)}:
                self._has_ended = True
                raise CommandFailed(self.command[0], error)
            case {"stopped": int(number)}:
                return Change(stopped=number)
            case {"ended": int(code)}:
                self._has_ended = True
                return Change(status=code if code >= 0 else killed_by(-code))
            case {"killed": True}:
                self.was_late = True
            case {"dismissed": True}:
                self._is_dismissed = True
            case {"gone": True}:
                self._is_dismissed = True
                if not self._has_ended:  # nothing would end it with this process
                    self._has_ended = True
                    self.send(signal.SIGKILL)
                    raise Unguarded
        return None
