"""filelock's classes on coordlock: its own front, with a lock of coordlock in place of a file's.

The suite's conftest: it replaces the classes before the suite imports them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import filelock

import coordlock

__all__: list[str] = []

#: COORDLOCK_URL says where.
client = coordlock.connect()  # now, because the suite compares what is logged later


class _CoordLock(filelock.BaseFileLock):  # type: ignore[misc]
    """A lock with the path as its name. What ``lock_file_fd`` holds is the grant."""

    def _acquire(self) -> None:
        name = hashlib.sha256(str(self.lock_file).encode()).hexdigest()
        self._context.lock_file_fd = client.lock(name).try_acquire()

    def _release(self) -> None:
        grant: Any = self._context.lock_file_fd
        self._context.lock_file_fd = None
        grant.release()


class FileLock(_CoordLock):
    pass


class SoftFileLock(_CoordLock):
    pass


filelock.FileLock, filelock.SoftFileLock = FileLock, SoftFileLock
