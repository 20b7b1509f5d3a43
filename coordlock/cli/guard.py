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

#: A process group, and until when it may work on the clock of coordlock's leases.
_MESSAGE: Final = struct.Struct("qd")
#: In place of the deadline of a group that has ended.
_ENDED: Final = -math.inf
#: The guard's exit status when it has killed a group.
_KILLED: Final = 1


class Guard:
    """Watches over process groups from a process and session of its own.

    It kills them when this process has died (SIGKILL too: the pipe closes), and each of them when
    this process has not extended its deadline in time (stopped, starved). So no command works on
    without its lock, whatever happens to coordlock itself.

    Made by a fork: only while there is one thread, so before connecting. With a ``group`` it
    watches over that one; without, over those that `extend` names.
    """

    def __init__(self, group: int | None = None) -> None:
        pipe, self._pipe = os.pipe()
        with blocked(ENDING):
            self._pid = os.fork()
            if self._pid == 0:
                _serve(pipe, self._pipe, group)
        os.close(pipe)
        os.set_blocking(self._pipe, False)
        self._has_killed = False

    def extend(self, group: int, deadline: float) -> None:
        """``group`` may work until ``deadline`` on the clock of coordlock's leases."""
        with contextlib.suppress(OSError):  # it is gone, or reads no more: no reason to stop
            os.write(self._pipe, _MESSAGE.pack(group, deadline))

    def forget(self, group: int) -> None:
        """``group`` has ended, and its number may become another's."""
        self.extend(group, _ENDED)

    def dismiss(self) -> bool:
        """It is no longer needed; whether it had to kill the group. Idempotent."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
            os.close(self._pipe)
            self._pid = 0
            self._has_killed = os.WIFEXITED(status) and os.WEXITSTATUS(status) == _KILLED
        return self._has_killed


def _serve(pipe: int, others: int, group: int | None) -> NoReturn:
    """The guard's process; signals that ask to end stay blocked. Never returns to the program."""
    try:
        # Away from coordlock's group, so that a signal to that group does not kill the guard too.
        os.setsid()
        os.close(others)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        deadlines = {} if group is None else {group: math.inf}
        has_killed = False
        while group is None or deadlines:
            now = SYSTEM_CLOCK.now()
            if late := [one for one, deadline in deadlines.items() if deadline <= now]:
                for one in late:
                    del deadlines[one]
                    has_killed |= _kill(one)
                continue
            left = min(deadlines.values(), default=math.inf) - now
            if select.select([pipe], [], [], None if left == math.inf else left)[0]:
                message = os.read(pipe, _MESSAGE.size)
                if len(message) < _MESSAGE.size:
                    for one in deadlines:
                        has_killed |= _kill(one)
                    break
                which, deadline = _MESSAGE.unpack(message)
                deadlines[which] = deadline
                if deadline == _ENDED:
                    del deadlines[which]
        os._exit(_KILLED if has_killed else 0)
    finally:
        os._exit(0)


def _kill(group: int) -> bool:
    """Kill ``group``; whether there was one."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
