"""Which process this is, without asking the system each time, which may take a microsecond."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["PROCESS"]


class _Process:
    """The process that runs, also after a fork.

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


PROCESS: Final = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROCESS.renew)
