"""Small files that the processes of one machine share under a lock, and where they may be.

Daemons close all descriptors that they did not open (``os.closerange``). The system then gives the
numbers to files of the program's own, which coordlock must neither write, read nor close.
"""

from __future__ import annotations

import binascii
import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

__all__ = [
    "Descriptor",
    "close_kept",
    "closed_in_children",
    "foreign",
    "keep_from_children",
    "no_fork",
    "overwrite",
    "seal",
    "to_disk",
    "unseal",
]

#: File systems of one machine, by the types of proc(5). Several machines may use any other, and
#: locks of another machine's processes may not be seen here. FUSE has a type for each program that
#: serves one.
_LOCAL: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "nilfs2", "ubifs"}
    | {"reiserfs", "reiser4", "jffs2", "udf", "ufs", "minix", "hfs", "hfsplus", "apfs"}
    | {"vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk"}
    | {"tmpfs", "ramfs", "rootfs", "overlay", "aufs", "fuse.fuse-overlayfs", "ecryptfs", "shiftfs"}
    | {"lxfs", "wslfs"}
)

#: Every fork holds it. Code that holds it can open a file and lock it, or note it, before any child
#: is forked, which would inherit the lock, and keep it when its parent is killed. Reentrant for
#: signal handlers.
no_fork: Final = threading.RLock()

#: What a forked child calls first, to close its copies of descriptors. Guarded by `no_fork`.
closed_in_children: Final[set[Callable[[], None]]] = set()


class Descriptor:
    """A descriptor, and the file for which it was opened."""

    def __init__(self, number: int) -> None:
        """Closes ``number`` when the system cannot say which file it is."""
        self.number: Final = number
        self._is_closed = False
        try:
            status = os.fstat(number)
        except BaseException:
            os.close(number)
            raise
        self._file: Final = status.st_dev, status.st_ino

    def status(self) -> os.stat_result | None:
        """The file's status; None when the descriptor was closed, or is another file's by now."""
        try:
            status = None if self._is_closed else os.fstat(self.number)
        except OSError:
            return None
        if status is None or (status.st_dev, status.st_ino) != self._file:
            return None
        return status

    def close(self) -> None:
        """Close it, if it is still the file's. Idempotent."""
        is_open = self.status() is not None
        self._is_closed = True
        if is_open:
            with suppress(OSError):
                os.close(self.number)


def keep_from_children(open_file: Callable[[], int]) -> Descriptor:
    """The descriptor that ``open_file`` returns; forked children close their copies at once."""
    with no_fork:
        descriptor = Descriptor(open_file())
        closed_in_children.add(descriptor.close)
        return descriptor


def close_kept(descriptor: Descriptor) -> None:
    """Close what `keep_from_children` returned."""
    closed_in_children.discard(descriptor.close)
    descriptor.close()


def _close_copies() -> None:
    try:
        for close in closed_in_children:
            close()
        closed_in_children.clear()
    finally:  # also when a signal handler raises
        no_fork.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=_close_copies
    )


def seal(fields: str) -> bytes:
    """One line of ASCII with a checksum."""
    data = fields.encode("ascii")
    return data + f" {binascii.crc32(data):08x}\n".encode("ascii")


def unseal(data: bytes) -> str:
    """The fields from which `seal` made ``data``; ValueError when it made no such line."""
    fields = data[:-10].decode("ascii")
    if data != seal(fields):
        raise ValueError("the checksum is not that of the line")
    return fields


def overwrite(descriptor: int, data: bytes) -> bool:
    """Put ``data`` at the file's start; whether all of it was written.

    Data that is short and always of the same length is in one page and written by one call, so
    neither SIGKILL nor a full disk can split it.
    """
    return os.pwrite(descriptor, data, 0) == len(data)


def to_disk(descriptor: int) -> None:
    """Wait until what was written to the file would survive a power cut."""
    if sys.platform == "darwin":  # where fsync(2) leaves it in the drive's cache
        import fcntl

        with suppress(OSError):  # not all of its file systems know this
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def foreign(path: str) -> str:
    """The file system of ``path``, in words, if it is not known to be local; else empty."""
    if sys.platform != "linux":
        return ""  # only Linux has /proc/self/mountinfo
    kind = _file_system(path)
    if kind in _LOCAL:
        return ""
    if not kind:
        return "a file system of which /proc/self/mountinfo says nothing"
    return f"a file system ({kind}) that is not known to be local to this machine"


def _file_system(path: str) -> str:
    """The type of the file system that holds ``path``, or "" where that is not known."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            table = file.read()
    except OSError:
        return ""
    path = os.path.join(os.path.realpath(path), "")
    found, longest = "", 0
    for line in table.splitlines():
        # proc(5): id, parent, device, root, mount point, options, tags..., "-", type, source, ...
        before, _, after = line.partition(b" - ")
        point = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), before.split()[4])
        prefix = os.path.join(os.fsdecode(point), "")
        if path.startswith(prefix) and len(prefix) >= longest:
            found, longest = after.split()[0].decode(), len(prefix)
    return found
