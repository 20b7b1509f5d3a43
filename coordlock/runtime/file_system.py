"""Whether a directory is on a file system of this machine alone."""

from __future__ import annotations

import os
import re
import sys
from typing import Final

__all__ = ["foreign"]

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
