"""Sessions: a process's life, as the operating system tells it to the others.

A session is a file that its process keeps open and locked. The kernel drops the lock when the
process ends, however it ends, so no clock and no process id, which may be reused, is involved. The
id is random and never used again: a session found unlocked is dead for good.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from coordlock.errors import BackendError
from coordlock_local.counter import Counter
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE
from coordlock_local.recordlock import owner, try_lock

__all__ = ["Session", "is_alive"]

# The sessions of this process. Their locks can't be probed from inside, and must not be: closing
# the probe's descriptor would drop them.
_own: Final[dict[str, Session]] = {}


class Session:
    """This process's session ``id`` in a directory."""

    def __init__(self, directory: Directory) -> None:
        self.id: Final = os.urandom(16).hex()
        self.directory: Final = directory
        self.path: Final = os.path.join(directory.sessions, self.id)
        self._descriptor = -1

    def start(self, counter: Counter) -> list[str]:
        """Make the file and lock it; the ids of the sessions that were there before.

        Both happen while the counter is held, so whoever holds it sees no file that is made and
        not yet locked: an unlocked one is dead. Raises `Busy`.
        """
        with counter.held():
            others = os.listdir(self.directory.sessions)
            _own[self.id] = self  # first, lest another thread probes it
            try:
                self._descriptor = self.directory.create(self.path)
                if not try_lock(self._descriptor):
                    raise BackendError(SERVICE, f"{self.path} is locked by another process")
            except BaseException:
                self.end()
                raise
        return others

    def is_intact(self) -> bool:
        """Whether the others can see it: nobody removed the directory meanwhile."""
        try:
            os.stat(self.path)
        except FileNotFoundError:
            return False
        return True

    def end(self) -> None:
        """Remove the file and unlock it. Idempotent."""
        if self._descriptor >= 0:
            with suppress(OSError):  # unlocked, it is dead all the same
                os.unlink(self.path)
            os.close(self._descriptor)
            self._descriptor = -1
        _own.pop(self.id, None)


def is_alive(directory: Directory, id: str) -> bool:
    """Whether the process of the session ``id`` lives and has not ended it."""
    if id in _own:
        return True
    try:
        descriptor = os.open(
            os.path.join(directory.sessions, id), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        )
    except FileNotFoundError:
        return False
    except PermissionError:
        return True  # not known: then nobody's contenders are removed
    try:
        return owner(descriptor) is not None
    finally:
        os.close(descriptor)


def _forget() -> None:
    # In a forked child. Record locks stay with the parent; the descriptors were copied, and would
    # delay the news of the parent's death.
    for session in _own.values():
        if session._descriptor >= 0:
            os.close(session._descriptor)
            session._descriptor = -1
    _own.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
