"""Exit statuses, and the one place where errors become a line on stderr and a status."""

from __future__ import annotations

import contextlib
import os
from enum import IntEnum
from typing import Final

from coordlock.cli.text import echo, printable
from coordlock.errors import (
    AlreadyFailed,
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    ConfigurationError,
    CoordlockError,
    Evicted,
    InvalidName,
    JobNotRun,
    LockLost,
    NameConflict,
    SessionLost,
    TooLarge,
    Unsupported,
    WaitTimeout,
)

__all__ = ["Exit", "complain", "joined", "killed_by", "report", "status_of"]


class Exit(IntEnum):
    """The statuses that are coordlock's own; 64 to 78 have the meaning of ``sysexits.h``."""

    OK = 0
    FAILED = 1  #: what was asked for was not found, or a check failed
    USAGE = 64  #: EX_USAGE: wrong options, a name that cannot be, another kind, too much data
    UNAVAILABLE = 69  #: EX_UNAVAILABLE: the service cannot be reached, or ended the session
    SOFTWARE = 70  #: EX_SOFTWARE: a slot that failed before, and nothing else that should happen
    IO_ERROR = 74  #: EX_IOERR: output that cannot be written, a process that cannot be started
    NOT_ACQUIRED = 75  #: EX_TEMPFAIL: busy, timed out, or evicted while waiting
    NO_PERMISSION = 77  #: EX_NOPERM: the service refused the credentials
    CONFIG = 78  #: EX_CONFIG: a URL, file or option that cannot be used, or a missing extra
    LOST = 79  #: the lock was lost while it was held
    NOT_EXECUTABLE = 126  #: as in the shell
    NOT_FOUND = 127  #: as in the shell


#: The first that fits.
_STATUSES: Final = (
    (AlreadyFailed, Exit.SOFTWARE),
    (JobNotRun, Exit.NOT_ACQUIRED),
    (WaitTimeout, Exit.NOT_ACQUIRED),
    (Evicted, Exit.NOT_ACQUIRED),
    (LockLost, Exit.LOST),
    (ConfigurationError, Exit.CONFIG),
    (Unsupported, Exit.CONFIG),
    (InvalidName, Exit.USAGE),
    (NameConflict, Exit.USAGE),
    (TooLarge, Exit.USAGE),
    (AuthenticationFailed, Exit.NO_PERMISSION),
    (BackendUnavailable, Exit.UNAVAILABLE),
    (SessionLost, Exit.UNAVAILABLE),
    (BackendError, Exit.UNAVAILABLE),
    (OSError, Exit.IO_ERROR),
)


def status_of(error: BaseException) -> Exit:
    """The exit status that stands for ``error``."""
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return Exit.SOFTWARE


def killed_by(signal: int) -> int:
    """The status by which shells tell that a process was ended by ``signal``."""
    return 128 + signal


def complain(message: object) -> None:
    """One line on stderr; nothing when stderr is gone."""
    with contextlib.suppress(OSError):
        echo(f"coordlock: {printable(str(message))}", err=True)


def joined(sentence: object, advice: str) -> str:
    """``sentence`` with ``advice`` after it; a question stays one."""
    text = str(sentence).rstrip(".")
    ends = text.endswith(("?", "?)"))
    return f"{text} {advice[0].upper()}{advice[1:]}" if ends else f"{text}; {advice}"


def report(error: BaseException) -> Exit:
    """Say in one line what went wrong, and what helps; the exit status for it.

    ``COORDLOCK_DEBUG=1`` in the environment adds the traceback.
    """
    status = status_of(error)
    if os.environ.get("COORDLOCK_DEBUG", "") not in ("", "0"):
        import traceback  # for this alone

        traceback.print_exception(error)
    complain(_sentence(error, status))
    return status


def _sentence(error: BaseException, status: Exit) -> str:
    match status:
        case Exit.UNAVAILABLE:
            return joined(error, "`coordlock doctor` with the same configuration tells more")
        case Exit.NO_PERMISSION if isinstance(error, BackendError) and error.service == "local":
            return f"{error}; or choose another one, with local:///path or XDG_STATE_HOME"
        case Exit.NO_PERMISSION:
            return joined(error, "check the user, the password and what they are allowed to do")
        case Exit.SOFTWARE if not isinstance(error, CoordlockError):
            kind = type(error).__name__
            return f"internal error: {kind}: {error} (COORDLOCK_DEBUG=1 shows where)"
    return str(error)
