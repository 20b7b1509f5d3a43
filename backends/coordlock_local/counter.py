"""The counter file: tokens that never repeat, and the lock that makes taking one exclusive.

The holder of the lock takes the next token and adds its contender, so a queue's order is the order
in which its contenders appeared. The lock is held for some system calls. The operating system drops
it when its holder dies, which leaves no trace but, at most, a token that is never used.

The file's first word is the version of all files in the directory. Each release refuses a version
that it does not know, before it changes anything.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from coordlock.errors import BackendError, ConfigurationError
from coordlock.runtime.shared_file import no_fork, overwrite, seal, to_disk, unseal
from coordlock_local.directory import UNKNOWN, Directory
from coordlock_local.errors import SERVICE, Busy
from coordlock_local.flock import try_lock, unlock

__all__ = ["VERSION", "Counter", "check"]

T = TypeVar("T")

#: Of the files in a state directory. It changes where other releases would misread a file. Fields
#: that are only added come after the others, and releases that don't know them ignore them.
VERSION: Final = "3"
#: Tokens are promised to the disk this many at a time, so that few of them wait for it.
_RESERVED_TOKENS: Final = 65_536
_MAX_BYTES: Final = 4096
#: For how long an attempt waits for the lock, and its first pause, in seconds.
_PATIENCE_S, _FIRST_PAUSE_S = 0.002, 0.0001
#: For how long it waits for other threads of this process, in seconds. They need less; but one may
#: be in a signal handler, and wait for this one.
_THREADS_PATIENCE_S: Final = 0.02


def check(directory: Directory) -> None:
    """Raise `ConfigurationError` where the files have a version that this release doesn't know."""
    with suppress(FileNotFoundError), open(directory.counter, "rb") as file:  # else it is new
        _check(directory.counter, file.read(_MAX_BYTES))


def _check(path: str, data: bytes) -> None:
    version = data.partition(b" ")[0]
    if version.isdigit() and version != VERSION.encode():
        raise ConfigurationError(
            f"{path} has version {version.decode()}, and this release of coordlock knows only "
            f"version {VERSION}: use the release that made it, or another directory, with "
            "local:///path or XDG_STATE_HOME"
        )


class Counter:
    """The counter of a directory.

    Its file has one line. Fields of later releases, at its end, are kept:

    * the version of the directory.
    * ``boot``: during which run of the operating system ``last`` was written.
    * ``last``: the last token taken. It may not be on the disk, so it counts only during ``boot``.
    * ``safe``: the ``reserved`` that an fsync wrote last; tokens up to it need no other fsync.
    * ``reserved``: the next run of the system starts above.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._path = directory.counter

    def hold(self, action: Callable[[int], T]) -> T:
        """The result of ``action``, which excludes all others; it gets the file's descriptor.

        Raises `Busy` where another process or thread holds it for more than an instant.
        """
        flags = os.O_RDWR | os.O_CREAT
        pause, until = _FIRST_PAUSE_S, time.monotonic() + _PATIENCE_S
        while True:
            # A signal handler may raise at any line: what is held is left by `finally` and by the
            # exits of `with` statements, none of which is Python's.
            try:
                # No fork meanwhile, because the child would inherit the lock.
                if no_fork.acquire(timeout=_THREADS_PATIENCE_S):
                    with io.FileIO(self._directory.open(self._path, flags), "r+") as file:
                        number = file.fileno()
                        try:
                            # If the file was removed or moved, the next attempt finds a new one.
                            if try_lock(self._path, number):
                                return action(number)
                        finally:
                            # Closing does that, too, but for copies in children of other forks.
                            unlock(number)
            finally:
                try:  # noqa: SIM105 - the exit of `suppress` is Python's
                    no_fork.release()
                except RuntimeError:  # it was not acquired
                    pass
            if time.monotonic() > until:
                raise Busy
            time.sleep(pause)
            pause *= 2

    def take(self, descriptor: int) -> int:
        """The next token: above all that were ever taken. To be called by what `hold` calls.

        During one run of the system the file's last writer is seen by the next, so ``last``
        counts. After a power cut the file is as of SOME moment since its last fsync; its
        ``reserved`` is at least what that fsync wrote, and nothing above was given out. ``safe``
        follows ``reserved`` only behind the fsync, so a process killed before its fsync leaves a
        reservation that the next one makes again.
        """
        boot, last, safe, reserved, others = self._read(descriptor)
        is_known = self._directory.boot != UNKNOWN
        if not is_known or boot != self._directory.boot:
            last = safe = reserved
        token = last + 1
        if token > safe:
            # Without a boot id there is no telling whether `last` counts: each token is reserved.
            reserved = token + _RESERVED_TOKENS if is_known else token
            self._write(descriptor, last, safe, reserved, others)
            to_disk(descriptor)
            safe = reserved
        self._write(descriptor, token, safe, reserved, others)
        return token

    def _read(self, descriptor: int) -> tuple[str, int, int, int, list[str]]:
        data = os.pread(descriptor, _MAX_BYTES, 0)
        if not data:
            # New, or its directory was removed. Starting from the clock, tokens go on growing then
            # too, unless more than a million a second were taken or the clock was set back.
            floor = time.time_ns() // 1000
            return UNKNOWN, floor, floor, floor, []
        with suppress(ValueError):
            version, boot, last, safe, reserved, *others = unseal(data).split(" ")
            if version == VERSION:
                return boot, int(last), int(safe), int(reserved), others
        _check(self._path, data)
        raise BackendError(
            SERVICE,
            f"{self._path} is damaged: delete it while no lock is in use; tokens then "
            "continue from the microseconds of the clock",
        )

    def _write(
        self, descriptor: int, last: int, safe: int, reserved: int, others: list[str]
    ) -> None:
        known = f"{VERSION} {self._directory.boot} {last:019d} {safe:019d} {reserved:019d}"
        if not overwrite(descriptor, seal(" ".join([known, *others]))):
            raise BackendError(SERVICE, f"{self._path} could not be written")
