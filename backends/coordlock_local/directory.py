"""The state directory: where it is, what must hold for it, and how it is laid out.

::

    <root>/counter                      the next token; its lock guards the order (counter.py)
    <root>/sessions/<session>           locked by a process for as long as it lives (session.py)
    <root>/queues/<name>/<contender>    the queue of one lock (queue.py)

A private directory (mode 0700, what is created where none is) belongs to one user. One that an
administrator made writable for a group (mode 2770) is shared by its members.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from coordlock.errors import ConfigurationError
from coordlock.model.names import file_name
from coordlock.sources import home

__all__ = ["Directory", "default_root"]

#: File systems that several machines share. The locks of another machine's processes may not be
#: seen here, so they would count as dead and lose their contenders.
_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs", "beegfs"}
    | {"glusterfs", "pvfs2", "orangefs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs"}
)


def default_root() -> str:
    """``$XDG_STATE_HOME/coordlock``, or ``~/.local/state/coordlock`` where that is not set.

    Raises `ConfigurationError` for a user without a home.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the XDG specification: ignore relative ones
        user = home(os.environ)
        if not os.path.isabs(user):
            raise ConfigurationError(
                "no directory for local locks: set XDG_STATE_HOME or HOME, or use local:///path"
            )
        state = os.path.join(user, ".local", "state")
    return os.path.join(state, "coordlock")


@dataclass(frozen=True, slots=True)
class Directory:
    """A state directory that was found fit.

    Attributes:
        root: its path.
        mode: the permissions of the directories in it.
        folds: its file system takes ``a`` and ``A`` for the same name.
    """

    root: str
    mode: int
    folds: bool

    @classmethod
    def prepare(cls, root: str) -> Self:
        """The directory at ``root``, created where there is none.

        Raises `ConfigurationError` for one that can't be used, OSError where something fails.
        """
        os.makedirs(root, 0o700, exist_ok=True)
        status = os.stat(root)
        if status.st_mode & stat.S_IWOTH:
            raise ConfigurationError(
                f"{root} is writable for everybody, so that anybody could break its locks: "
                "use a directory with mode 0700, or with mode 2770 and a group of its own"
            )
        shared = status.st_mode & stat.S_IWGRP
        if not shared and status.st_uid != os.geteuid():
            raise ConfigurationError(
                f"{root} belongs to user {status.st_uid} alone, this is user {os.geteuid()}: "
                "use another directory, or give it mode 2770 and a group of which both are members"
            )
        if (kind := _file_system(root)) in _NETWORK:
            raise ConfigurationError(
                f"{root} is on a network file system ({kind}), and local locks cover one machine: "
                "choose a directory on a local disk, with local:///path or XDG_STATE_HOME, "
                "or coordinate machines with zookeeper:// or etcd://"
            )
        mode = stat.S_IMODE(status.st_mode) & 0o2770 if shared else 0o700
        directory = cls(root, mode, folds=False)
        directory.make(directory.sessions)
        directory.make(directory.queues)
        return cls(root, mode, folds=os.path.exists(os.path.join(root, "SESSIONS")))

    @property
    def shared(self) -> bool:
        """Whether several users have access."""
        return bool(self.mode & 0o070)

    @property
    def counter(self) -> str:
        """The file that the tokens come from."""
        return os.path.join(self.root, "counter")

    @property
    def sessions(self) -> str:
        """The directory of the sessions."""
        return os.path.join(self.root, "sessions")

    @property
    def queues(self) -> str:
        """The directory of the queues."""
        return os.path.join(self.root, "queues")

    def queue(self, name: str) -> str:
        """The directory of the queue ``name``. No two names share one."""
        return os.path.join(self.queues, file_name(name, folds=self.folds))

    def make(self, path: str) -> None:
        """Make a directory, unless it is there."""
        with suppress(FileExistsError):
            os.mkdir(path, self.mode)
            if self.shared:  # the umask must not shut out the group
                os.chmod(path, self.mode)

    def create(self, path: str, *, exclusive: bool = True) -> int:
        """A descriptor of the new file ``path``, or of an old one if not ``exclusive``."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags | (os.O_EXCL if exclusive else 0), 0o600)
        try:
            if self.shared and os.fstat(descriptor).st_uid == os.geteuid():
                os.fchmod(descriptor, self.mode & 0o660)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _file_system(path: str) -> str:
    """The type of the file system that holds ``path``, or "" where that is not known."""
    try:
        table = Path("/proc/self/mountinfo").read_bytes()
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
