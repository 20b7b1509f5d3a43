"""POSIX record locks on whole files: what the operating system drops when a process ends.

Chosen over ``flock`` and open-file-description locks, because a forked child inherits those and
keeps them when its parent is gone. The price: they never conflict within one process, and closing
ANY descriptor of a file drops the process's lock on it. So each lock here has one owner, which is
known in its process (`coordlock_local.session`, `coordlock_local.counter`).
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from typing import Final

if os.name == "posix":  # elsewhere `LocalBackend.configure` refuses before anything is called
    import fcntl

__all__ = ["owner", "try_lock"]

#: ``struct flock`` and where its fields are. POSIX fixes the names, not their order.
if sys.platform == "linux":
    _LAYOUT: Final = struct.Struct("@hhqqi4x")
    _TYPE, _PID = 0, 4
else:
    _LAYOUT = struct.Struct("@qqihh4x")
    _TYPE, _PID = 3, 2


def try_lock(descriptor: int) -> bool:
    """Lock the file for this process; False when another process has it. Never waits."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def owner(descriptor: int) -> int | None:
    """The process that has locked the file: its id, 0 where it can't be named, None for nobody.

    A lock of the calling process is not seen.
    """
    fields = [0] * 5
    fields[_TYPE] = fcntl.F_WRLCK
    answer = _LAYOUT.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, _LAYOUT.pack(*fields)))
    return None if answer[_TYPE] == fcntl.F_UNLCK else max(0, answer[_PID])
