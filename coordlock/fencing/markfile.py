"""The file that keeps the marks of one resource, and whose flock makes an operation one step."""

from __future__ import annotations

import errno
import os
import sys
import threading
from typing import Final, NamedTuple

from coordlock.fencing.marks import Marks
from coordlock.fencing.token import FencingToken
from coordlock.runtime.shared_file import (
    close_kept,
    keep_from_children,
    overwrite,
    seal,
    to_disk,
    unseal,
)

if sys.platform != "win32":  # where `FileFence` refuses before anything is called
    import fcntl

__all__ = ["Damaged", "MarkFile", "Record", "sync"]


class Damaged(ValueError):
    """The file holds something else than a record."""


class Record(NamedTuple):
    """What a file says.

    Attributes:
        marks: the marks.
        safe: they are known to be on the disk, and the file's name in its directory. A process
            that is killed before it has waited for the disk leaves a record that is not.
    """

    marks: Marks = Marks()
    safe: bool = False

    def encode(self) -> bytes:
        """One line, always as long."""
        state = "safe" if self.safe else "sent"
        return seal(f"1 {self.marks.exclusive:019d} {self.marks.shared:019d} {state}")

    @classmethod
    def decode(cls, data: bytes) -> Record:
        """The record that `encode` made ``data`` from. Raises `Damaged`."""
        if not data:
            # Its first writer was killed, or had a power cut, before its block.
            return cls()
        try:
            version, exclusive, shared, state, *_ = unseal(data).split(" ")
            if version != "1":
                raise ValueError("another version")
            return cls(Marks(int(exclusive), int(shared)), state == "safe")
        except ValueError:
            raise Damaged from None


#: The paths of the files that each thread of this process has locked.
_locked: Final[set[tuple[int, int, str]]] = set()


class MarkFile:
    """The file at ``path``, open for one operation on ``resource``.

    ``flags`` are further ones of open(2). Raises OSError, and RuntimeError when the calling thread
    has it locked already, because it would wait for itself.
    """

    def __init__(self, resource: str, path: str, flags: int) -> None:
        self.path: Final = path
        self._resource = resource
        #: A forked child's thread has the number of the one that forked, but not its locks.
        self._held: Final = os.getpid(), threading.get_ident(), path
        if self._held in _locked:
            raise RuntimeError(
                f"this thread is inside of a guard of {resource!r} and would wait for itself; "
                "in asyncio, use asyncio.to_thread for the guard and what it guards"
            )
        flags |= os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = keep_from_children(lambda: os.open(path, flags, 0o600))
        self._descriptor = self._file.number

    def lock(self) -> None:
        """Wait until nothing else has it locked. Signal handlers run meanwhile, and may raise."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        _locked.add(self._held)

    def is_in_place(self) -> bool:
        """Whether this is still the file that others find."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def read(self) -> Record:
        """What it says. Raises OSError when it is damaged."""
        try:
            return Record.decode(os.pread(self._descriptor, 4096, 0))
        except Damaged:
            raise OSError(
                errno.EIO,
                f"the fence's marks of {self._resource!r} are damaged: call forget() once no "
                "earlier grant can still act",
                self.path,
            ) from None

    def admit(self, token: FencingToken) -> None:
        """Have the marks with ``token`` on the disk. Raises `StaleToken`.

        The record is safe only behind the fsync. One that is not is written again first, because
        after an fsync that failed the kernel takes what it could not write for written.
        """
        marks, safe = self.read()
        raised = marks.raised(self._resource, token)
        if safe and raised == marks:
            return
        self._write(Record(raised))
        to_disk(self._descriptor)
        if not safe:  # perhaps it is new
            sync(os.path.dirname(self.path))
        self._write(Record(raised, safe=True))

    def close(self) -> None:
        """Unlock and close it. Does nothing in a forked child, which has closed its copy."""
        _locked.discard(self._held)
        if self._file.status() is not None:
            # First, whatever interrupts the rest; also for copies that a child may have.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        close_kept(self._file)

    def _write(self, record: Record) -> None:
        if not overwrite(self._descriptor, record.encode()):
            raise OSError(errno.EIO, "the fence's marks could not be written", self.path)


def sync(directory: str) -> None:
    """Wait until the names in ``directory`` are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
