"""Sessions: whether a process lives, as the operating system tells other processes.

A session is a file that its process keeps open and locked. The kernel drops the lock when the
process ends, however it ends, so no clock and no process id, which may be reused, is involved. The
id is random and never used again: a session that is not locked is dead for good.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import partial
from typing import Final

from coordlock.errors import BackendError
from coordlock.runtime.shared_file import Descriptor, close_kept, keep_from_children
from coordlock_local.counter import Counter
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE
from coordlock_local.flock import is_locked, try_lock
from coordlock_local.pipes import Pipe

__all__ = ["LocalSession", "is_alive"]


class LocalSession:
    """This process's session ``id`` in a directory."""

    def __init__(self, directory: Directory) -> None:
        self.id: Final = os.urandom(16).hex()
        self.directory: Final = directory
        self.counter: Final = Counter(directory)
        self._path = directory.session(self.id)
        #: Held while one of its contenders is removed, and while it ends. After either, another
        #: contender may use the slot, which this session must then leave untouched.
        self.slots_lock: Final = threading.RLock()
        self._descriptor: Descriptor | None = None
        #: What others write into when this session may have to look; None until `start`.
        self.pipe: Pipe | None = None

    def start(self) -> list[str]:
        """Make the file and lock it; the ids of sessions that are dead.

        All of it while the counter is held. So a holder of the counter sees no file that is made
        and not yet locked: a session that is not locked is dead. Raises `Busy`.
        """
        return self.counter.hold(self._start)

    def _start(self, _: int) -> list[str]:
        others = os.listdir(self.directory.sessions)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        descriptor = keep_from_children(partial(self.directory.open, self._path, flags))
        self._descriptor = descriptor
        try:
            if not try_lock(self._path, descriptor.number):
                raise BackendError(SERVICE, f"{self._path} is locked by another program")
            self.pipe = Pipe(self.directory, self.id)
            return [id for id in others if not is_alive(self.directory, id)]
        except BaseException:
            self.end()
            raise

    @property
    def has_ended(self) -> bool:
        """Whether `end` was called."""
        return self._descriptor is None

    def is_alive(self) -> bool:
        """Whether other processes find it alive: its file is open here, and where they look."""
        descriptor = self._descriptor
        status = None if descriptor is None else descriptor.status()
        try:
            return status is not None and os.path.samestat(status, os.stat(self._path))
        except FileNotFoundError:
            return False

    def why_dead(self) -> str:
        """What has happened to the session's file, in words, where `is_alive` is false."""
        root, descriptor = self.directory.root, self._descriptor
        status = None if descriptor is None else descriptor.status()
        what = "closed" if status is None else "removed, or its directory was moved"
        return f"its file in {root} was {what}"

    def end(self) -> None:
        """Remove the file and unlock it. Idempotent."""
        with self.slots_lock:
            # The session's file last: where it is left, others clear away the pipe as well.
            for path in (self.directory.pipe(self.id), self._path):
                with suppress(OSError):  # unlocked, it is dead all the same
                    os.unlink(path)
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                close_kept(descriptor)
            # After that, so that processes that see its end find the session dead.
            if self.pipe is not None:
                self.pipe.close()


def is_alive(directory: Directory, id: str) -> bool:
    """Whether the process of the session ``id`` lives and has not ended it."""
    try:
        descriptor = directory.open(directory.session(id), os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True  # not known: then its contenders stay
    try:
        return is_locked(descriptor)
    finally:
        os.close(descriptor)
