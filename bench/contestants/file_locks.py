"""One machine's files: filelock, and what the kernel itself asks for."""

from __future__ import annotations

import fcntl
import os
from typing import Any

from bench.contestants.contestant import Contestant

__all__ = ["FileLock", "Flock"]


class FileLock(Contestant):
    """filelock, as it comes: it asks again every 50 ms."""

    def acquire(self, name: str) -> Any:
        import filelock

        lock = filelock.FileLock(os.path.join(self.address, f"{name}.filelock"))
        lock.acquire()
        return lock

    def release(self, held: Any) -> None:
        held.release()


class Flock(Contestant):
    """Open, flock(2), close: no order, no token, no name of the holder."""

    def acquire(self, name: str) -> int:
        file = os.open(os.path.join(self.address, f"{name}.flock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def release(self, held: int) -> None:
        os.close(held)
