"""The controlling terminal, and the job control that goes with it."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import threading
from functools import cache
from typing import Any, Self

from coordlock.cli.signals import blocked

__all__ = ["Terminal", "alone_at_terminal", "in_background", "stop_myself"]


class Terminal:
    """The controlling terminal, which listens to one process group at a time.

    POSIX.1-2017, Base Definitions, section 11.1: only its foreground group may read from it, and
    gets the signals of its keys.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._modes: list[Any] | None = None

    @classmethod
    @cache
    def open(cls) -> Self | None:
        """The terminal of this process, opened once, or None."""
        try:
            return cls(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        except OSError:
            return None

    @property
    def foreground(self) -> int:
        """The process group that it listens to; 0 when it hung up."""
        try:
            return os.tcgetpgrp(self._file)
        except OSError:
            return 0

    @property
    def is_mine(self) -> bool:
        """Whether it listens to this process's group."""
        return self.foreground == os.getpgrp()

    def give_to(self, group: int) -> None:
        """Let it listen to ``group`` from now on."""
        self.remember()
        self._set(group)

    def remember(self) -> None:
        """Note the modes that `take_back` repairs."""
        with contextlib.suppress(OSError, termios.error):
            self._modes = termios.tcgetattr(self._file)

    def take_back(self, group: int, *, repair: bool = False) -> None:
        """Take it back from ``group``, unless another group has taken it meanwhile.

        ``repair`` restores the modes it had, for a program that was killed and left others.
        """
        if self.foreground != group:
            return
        self._set(os.getpgrp())
        if repair and self._modes is not None:
            # tcsetattr, too, stops a process of another group; by now this is the right one.
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._file, termios.TCSADRAIN, self._modes)

    def _set(self, group: int) -> None:
        # From the background this stops the caller, unless SIGTTOU is blocked.
        with blocked([signal.SIGTTOU]), contextlib.suppress(OSError):
            os.tcsetpgrp(self._file, group)


def alone_at_terminal() -> bool:
    """Whether no pipeline shares the terminal: input and output are both its own.

    In ``coordlock run x -- cmd | less`` the terminal must stay with the group that less is in.
    """
    return os.isatty(0) and os.isatty(1)


def in_background() -> bool:
    """Whether stdin is a terminal that listens to others: to read it would stop this process."""
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:  # it is none, or hung up
        return False


def stop_myself() -> None:
    """Stop as Ctrl-Z does, until this process is continued.

    Returns at once in an orphaned process group, which the kernel does not stop: there is no shell
    that could continue it.
    """
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    # To this thread: then it takes effect before the call returns.
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)
