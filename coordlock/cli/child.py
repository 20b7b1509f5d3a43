"""The command as a process group: forked early, started when the lock is held."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from coordlock.cli.exits import Exit, killed_by
from coordlock.cli.guard import Guard
from coordlock.cli.signals import ENDING, blocked

__all__ = ["Change", "Child", "CommandFailed"]


class CommandFailed(Exception):
    """The command could not be executed; ``status`` is the one that shells use for it."""

    def __init__(self, command: str, error: int) -> None:
        super().__init__(f"{command}: {os.strerror(error)}")
        self.status = Exit.NOT_FOUND if error == errno.ENOENT else Exit.NOT_EXECUTABLE


@dataclass(eq=False, repr=False)
class Change:
    """What happened to the command: it stopped by a signal, or it ended with a status."""

    stopped: int | None = None
    status: int | None = None


class Child:
    """The command: a process group of its own, with the terminal, files and limits of this process.

    The fork happens here and the exec in `start`: connecting starts threads, and a process with
    threads cannot fork safely. Until then the child sleeps on a pipe, and ends when this process
    does.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.command: Final = tuple(command)
        orders, self._orders = os.pipe()
        self._failure, failure = os.pipe()
        with blocked(ENDING):
            self.group: Final = os.fork()
            if self.group == 0:
                os.close(self._orders)
                os.close(self._failure)
                _become(self.command, orders, failure)
        for theirs in (orders, failure):
            os.close(theirs)
        # Both sides set it, so that it is done whichever comes first.
        with contextlib.suppress(OSError):
            os.setpgid(self.group, self.group)
        self.guard: Final = Guard(self.group)
        self._reaped = False

    def start(self, environment: Mapping[str, str]) -> None:
        """Execute the command, with ``environment`` added to this process's.

        Raises `CommandFailed`.
        """
        with contextlib.suppress(BrokenPipeError):  # killed from outside: its status tells
            os.write(self._orders, json.dumps(dict(environment)).encode())
        os.close(self._orders)
        failure = os.read(self._failure, 16)
        os.close(self._failure)
        if failure:
            raise CommandFailed(self.command[0], int(failure))

    def change(self) -> Change | None:
        """What happened since the last call, if anything. Does not wait."""
        if self._reaped:
            return None
        pid, wait_status = os.waitpid(self.group, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(wait_status):
            return Change(stopped=os.WSTOPSIG(wait_status))
        self._reaped = True
        if os.WIFSIGNALED(wait_status):
            return Change(status=killed_by(os.WTERMSIG(wait_status)))
        return Change(status=os.WEXITSTATUS(wait_status))

    def send(self, number: int) -> bool:
        """Signal the whole group; whether there still is one."""
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

    def close(self) -> None:
        """Dismiss the guard, and end the command where it was not started or has not ended."""
        if not self._reaped:
            self.send(signal.SIGKILL)
            os.waitpid(self.group, 0)
            self._reaped = True
        self.guard.dismiss()


def _reason(error: OSError, command: str) -> int:
    """The errno for people: a directory on the PATH that may not be searched hides nothing else."""
    nowhere = "/" not in command and not any(
        os.path.isfile(os.path.join(directory, command)) for directory in os.get_exec_path()
    )
    return errno.ENOENT if nowhere or error.errno is None else error.errno


def _become(command: tuple[str, ...], orders: int, failure: int) -> NoReturn:
    """The child's side: wait for the order, then become the command. Never returns."""
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        # What Python changed goes back; what the caller ignores (nohup) stays ignored.
        for number in (*ENDING, signal.SIGPIPE, signal.SIGXFSZ):
            if number in (signal.SIGPIPE, signal.SIGXFSZ) or (
                signal.getsignal(number) is not signal.SIG_IGN
            ):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        # One write of less than PIPE_BUF arrives as one piece.
        if order := os.read(orders, 65536):
            os.environ.update(json.loads(order))
            try:
                os.execvp(command[0], command)
            except OSError as error:
                os.write(failure, str(_reason(error, command[0])).encode())
    finally:
        os._exit(Exit.NOT_FOUND)
