"""Which process this is, on which machine, and whether the thread is one of coordlock's own."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Final

__all__ = ["PROCESS", "THREAD", "host_name"]


class _Process:
    """The process that runs, also after a fork.

    To ask the system each time may take a microsecond.

    Attributes:
        id: as `os.getpid` gives it.
        is_exiting: whether the interpreter's exit has begun to close the clients.
    """

    __slots__ = ("id", "is_exiting")

    def __init__(self) -> None:
        self.is_exiting = False
        self.renew()

    def renew(self) -> None:
        """Ask the system."""
        self.id = os.getpid()


@cache
def host_name() -> str:
    """This machine's."""
    if hasattr(os, "uname"):
        return os.uname().nodename
    import socket  # only on Windows: not cheap to import

    return socket.gethostname()


class _Thread(threading.local):
    """The thread that runs.

    Attributes:
        must_not_wait: whether heartbeats and answers need it. The garbage collector may run code of
            the application's here, such as the end of a `with` block in a dropped generator.
    """

    must_not_wait = False


PROCESS: Final = _Process()
THREAD: Final = _Thread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROCESS.renew)
