"""flock(2) on whole files: what the operating system drops when the last holder's process ends.

Chosen over POSIX record locks, which a process drops unseen when ANY code in it opens and closes
the file: a program that backs up its own home would lose its locks and not know. The price is that
a forked child inherits the lock, so every child closes its copies (`os.register_at_fork`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from coordlock.runtime.shared_file import no_fork
from coordlock_local.descriptor import Descriptor

if os.name == "posix":  # elsewhere `LocalBackend.configure` refuses before anything is called
    import fcntl

__all__ = [
    "close_kept",
    "holder",
    "is_locked",
    "keep_from_children",
    "try_lock",
    "unlock",
]

#: Descriptors of files that may be locked for longer than a fork can wait.
_close_in_children: Final[set[Descriptor]] = set()


def keep_from_children(open_file: Callable[[], int]) -> Descriptor:
    """A descriptor that ``open_file`` gives, and that forked children close at once."""
    with no_fork:
        descriptor = Descriptor(open_file())
        _close_in_children.add(descriptor)
        return descriptor


def close_kept(descriptor: Descriptor) -> None:
    """Close what `keep_from_children` gave."""
    _close_in_children.discard(descriptor)
    descriptor.close()


def _close_all() -> None:
    for descriptor in _close_in_children:
        descriptor.close()
    _close_in_children.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)


def try_lock(descriptor: int) -> bool:
    """Lock the file through this descriptor and its copies; False when it is locked already."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
