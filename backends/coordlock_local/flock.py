"""flock(2) on whole files: the operating system drops it when the last holder's process ends.

Chosen over POSIX record locks, which a process drops unseen when ANY code in it opens and closes
the file: a program that backs up its own home would lose its locks and not know. The price is that
a forked child inherits the lock, so every child closes its copies (`keep_from_children`).
"""

from __future__ import annotations

import os
import sys
from typing import Final

from coordlock.errors import ConfigurationError

if sys.platform != "win32":  # where `LocalBackend.configure` refuses before anything is called
    import fcntl

__all__ = ["holder", "is_locked", "refuse_without_flock", "try_lock", "unlock"]

#: How the systems begin whose flock(2) is as above. Elsewhere it may be missing, or made of record
#: locks: Python then imitates it, and no error would show it.
_SYSTEMS: Final = ("linux", "android", "darwin", "freebsd", "openbsd", "netbsd", "dragonfly")


def refuse_without_flock() -> None:
    """Raise `ConfigurationError` on a system that is not known to have it."""
    if not sys.platform.startswith(_SYSTEMS):
        raise ConfigurationError(
            f"local:// does not work on this system ({sys.platform}), because it needs flock(2) as "
            "Linux, macOS and the BSDs have it: use etcd:// or zookeeper://, or memory:// for the "
            "threads of one process"
        )


def try_lock(path: str, descriptor: int) -> bool:
    """Lock the file at ``path`` through this descriptor and its copies.

    False when it is locked already, or another file is there now, which others would lock.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def unlock(descriptor: int) -> None:
    """Unlock the file, also for copies of the descriptor that a forked child may have."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_locked(descriptor: int) -> bool:
    """Whether the file is locked through another descriptor.

    Where it is not, this one has a shared lock until it is closed, which other probes ignore.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def holder(path: str) -> int:
    """The process that locked the file, or 0 where the system doesn't tell. For people."""
    try:
        inode = f":{os.stat(path).st_ino}"
        with open("/proc/locks", encoding="ascii") as file:
            table = file.readlines()
    except (OSError, ValueError):
        return 0
    for line in table:
        # proc(5): "1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF"
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(inode):
            return max(0, int(fields[4]))
    return 0
