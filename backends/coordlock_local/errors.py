"""What the operating system's refusals mean for users of the locks."""

from __future__ import annotations

import errno
import os
from typing import Final

from coordlock.errors import AuthenticationFailed, BackendError

__all__ = ["SERVICE", "Busy", "translated"]

SERVICE: Final = "local"

_ELSEWHERE: Final = "choose another directory, with local:///path or XDG_STATE_HOME"
_ADVICE: Final = {
    errno.ENOSPC: "free some space, or some inodes (df -i)",
    errno.EDQUOT: "the disk quota is used up: free some space",
    errno.EROFS: _ELSEWHERE,
    errno.ENOTDIR: _ELSEWHERE,
    errno.EEXIST: _ELSEWHERE,
    errno.EISDIR: _ELSEWHERE,
    errno.ENOLCK: f"the file system has no locks: {_ELSEWHERE}",
    errno.ENOSYS: f"the file system cannot do it: {_ELSEWHERE}",
    errno.EOPNOTSUPP: f"the file system cannot do it: {_ELSEWHERE}",
    errno.EMFILE: "raise the process's limit of open files (ulimit -n)",
    errno.ENFILE: "raise the machine's limit of open files",
}


class Busy(Exception):
    """Another thread or process is changing the state directory; it is over in microseconds."""


def translated(error: OSError, root: str) -> BackendError:
    """The error of coordlock that says what happened, where, and what can be done.

    Where a call has only a descriptor, the system names no file: then the directory ``root`` is.
    """
    where = f"{os.fsdecode(error.filename or root)}: {error.strerror or error}"
    if error.errno in (errno.EACCES, errno.EPERM):
        reason = f"{where}; it must be readable and writable for user {os.geteuid()}"
        return AuthenticationFailed(SERVICE, reason)
    advice = _ADVICE.get(error.errno or 0)
    return BackendError(SERVICE, f"{where}; {advice}" if advice else where)
