"""The counter file: tokens that never repeat, and the lock that makes taking one exclusive.

The holder of the lock takes the next token and adds its contender, so a queue's order is the order
in which its contenders appeared. The lock is held for some system calls; it is the kernel's, so
that a process that dies inside leaves no trace but, at most, a token that is never used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from coordlock.errors import BackendError
from coordlock.runtime.shared_file import no_fork, overwrite, seal, unseal
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy
from coordlock_local.flock import try_lock, unlock

__all__ = ["Counter", "Tokens", "boot_id"]

#: Tokens are promised to the disk this many at a time, so that few of them wait for it.
_BLOCK: Final = 65_536
#: The boot id where there is none. All are as long as the kernel's.
_UNKNOWN: Final = "-" * 36
#: For how long one attempt waits for the threads of this process, in seconds.
_PATIENCE: Final = 0.002


def boot_id() -> str:
    """What identifies this run of the operating system, or "" where nothing does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


class Counter:
    """The counter of a directory. ``boot`` is the `boot_id`."""

    def __init__(self, directory: Directory, boot: str | None = None) -> None:
        self._directory = directory
        self._boot = (boot_id() if boot is None else boot).ljust(36, "-")[:36]

    @contextmanager
    def held(self) -> Iterator[Tokens]:
        """Exclude all others; raises `Busy` at once when another holds it."""
        # Held with the file's lock, which no child must inherit.
        if not no_fork.acquire(timeout=_PATIENCE):
            raise Busy
        try:
            path = self._directory.counter
            descriptor = self._directory.create(path, exclusive=False)
            try:
                if not try_lock(descriptor):
                    raise Busy
                try:
                    if os.fstat(descriptor).st_nlink == 0:  # removed: the next one finds a new one
                        raise Busy
                    yield Tokens(descriptor, path, self._boot)
                finally:
                    unlock(descriptor)
            finally:
                os.close(descriptor)
        finally:
            no_fork.release()


class _Record(NamedTuple):
    """What the file says.

    Attributes:
        boot: during which run of the system ``last`` was written.
        last: the last token taken. Not waited for on the disk, so it counts only during ``boot``.
        safe: no token above is given out: so much of ``reserved`` is known to be on the disk.
        reserved: the next run of the system starts above.
    """

    boot: str
    last: int
    safe: int
    reserved: int


class Tokens:
    """The counter, held."""

    def __init__(self, descriptor: int, path: str, boot: str) -> None:
        self._descriptor = descriptor
        self._path = path
        self._boot = boot

    def take(self) -> int:
        """The next token: above all that were ever taken.

        During one run of the system the file's last writer is seen by the next, so ``last``
        counts. After a power cut the file is as of SOME moment since its last fsync; its
        ``reserved`` is at least what that fsync wrote, and nothing above was given out. ``safe``
        follows ``reserved`` only behind the fsync, so a process killed before its fsync leaves a
        reservation that the next one makes again.
        """
        record = self._read()
        last, safe, reserved = record.last, record.safe, record.reserved
        is_known = self._boot != _UNKNOWN
        if not is_known or record.boot != self._boot:
            last = safe = reserved
        token = last + 1
        if token > safe:
            # Without a boot id there is no telling whether `last` counts: each token is reserved.
            reserved = token + _BLOCK if is_known else token
            self._write(_Record(self._boot, last, safe, reserved))
            os.fsync(self._descriptor)
            safe = reserved
        self._write(_Record(self._boot, token, safe, reserved))
        return token

    def _read(self) -> _Record:
        data = os.pread(self._descriptor, 4096, 0)
        if not data:
            # New, or its directory was removed. Starting from the clock, tokens go on growing then
            # too, unless more than a million a second were taken or the clock was set back.
            floor = time.time_ns() // 1000
            return _Record(_UNKNOWN, floor, floor, floor)
        try:
            boot, last, safe, reserved = unseal(data).split(" ")
            return _Record(boot, int(last), int(safe), int(reserved))
        except ValueError:
            raise BackendError(
                SERVICE,
                f"{self._path} is damaged; if it is deleted while no lock is in use, tokens go on "
                "from the microseconds of the clock",
            ) from None

    def _write(self, record: _Record) -> None:
        data = seal(f"{record.boot} {record.last:019d} {record.safe:019d} {record.reserved:019d}")
        if not overwrite(self._descriptor, data):
            raise BackendError(SERVICE, f"{self._path} could not be written")
