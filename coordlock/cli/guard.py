"""The guard: a second process that ends the command when coordlock no longer can."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import struct
from typing import Final, NoReturn

from coordlock.cli.signals import ENDING, blocked
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["Guard"]

_DEADLINE: Final = struct.Struct("d")
#: The guard's exit status when it has killed the group.
_KILLED: Final = 1


class Guard:
    """Watches over the process group ``group`` from a process and session of its own.

    It kills the group when this process has died (SIGKILL too: the pipe closes), and when it has
    not extended the deadline in time (stopped, starved). So nothing that `coordlock run` started
    works on without the lock, whatever happens to `coordlock run` itself.

    Made by a fork: only while there is one thread, so before connecting.
    """

    def __init__(self, group: int) -> None:
        pipe, self._pipe = os.pipe()
        with blocked(ENDING):
            self._pid = os.fork()
            if self._pid == 0:
                _serve(pipe, self._pipe, group)
        os.close(pipe)
        os.set_blocking(self._pipe, False)
        self._has_killed = False

    def extend(self, deadline: float) -> None:
        """The command may work until ``deadline`` on the clock of coordlock's leases."""
        with contextlib.suppress(OSError):  # it is gone, or reads no more: no reason to stop
            os.write(self._pipe, _DEADLINE.pack(deadline))

    def dismiss(self) -> bool:
        """It is no longer needed; whether it had to kill the group. Idempotent."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
            os.close(self._pipe)
            self._pid = 0
            self._has_killed = os.WIFEXITED(status) and os.WEXITSTATUS(status) == _KILLED
        return self._has_killed


def _serve(pipe: int, others: int, group: int) -> NoReturn:
    """The guard's process; signals that ask to end stay blocked. Never returns to the program."""
    try:
        # Away from coordlock's group, so that a signal to that group does not kill the guard too.
        os.setsid()
        os.close(others)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        deadline = math.inf
        while (left := deadline - SYSTEM_CLOCK.now()) > 0:
            timeout = None if left == math.inf else left
            if select.select([pipe], [], [], timeout)[0]:
                message = os.read(pipe, _DEADLINE.size)
                if len(message) < _DEADLINE.size:
                    break
                (deadline,) = _DEADLINE.unpack(message)
        os.killpg(group, signal.SIGKILL)
        os._exit(_KILLED)
    finally:
        os._exit(0)
