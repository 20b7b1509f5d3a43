"""Linux's inotify(7): what happens to files, and to processes that had them open."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Collection
from contextlib import suppress
from typing import Final

__all__ = ["Inotify"]

_CLOSE_WRITE: Final = 0x8
_ATTRIB: Final = 0x4  # the link count is an attribute: removed, though a process has it open
_DELETE_SELF: Final = 0x400
_MOVE_SELF: Final = 0x800
_IGNORED: Final = 0x8000
_OVERFLOW: Final = 0x4000
_REMOVED: Final = _ATTRIB | _DELETE_SELF | _MOVE_SELF
_HEADER: Final = struct.Struct("iIII")


class Inotify:
    """One inotify instance, and an eventfd that wakes the thread in `wait`.

    A session that ends is unlinked, or its process has ended and the kernel closes it: only that
    process opens it for writing.
    """

    #: Notices are trusted, and yet checked: a forked child of the holder may keep a file open.
    interval: Final = 5.0

    def __init__(self) -> None:
        """Raises OSError where there is no inotify, or none left for this user."""
        self._lock = threading.RLock()
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        try:
            self._library = ctypes.CDLL(None, use_errno=True)
            self._descriptor: int = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
        if self._descriptor < 0:
            raise _last_error()
        try:
            self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._poll.register(self._waker, select.POLLIN)

    def add(self, path: str, *, closed: bool = True) -> None:
        """Tell of ``path`` from now on; OSError where it's gone or limits are reached.

        What happens before the watch is recorded may go unheard: look at the file afterwards.
        """
        mask = _REMOVED | _CLOSE_WRITE if closed else _REMOVED
        watch = self._library.inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        if watch < 0:
            raise _last_error(path)
        self._watches[path] = watch
        self._paths[watch] = path

    def drop(self, path: str) -> None:
        """Tell no more of ``path``."""
        watch = self._watches.pop(path, None)
        # The kernel drops those of removed files itself, and never uses their numbers again.
        if watch is not None and self._paths.pop(watch, None) is not None:
            self._library.inotify_rm_watch(self._descriptor, watch)

    def wait(self, timeout: float | None) -> Collection[str] | None:
        """The paths that may have changed; None when too much happened to tell."""
        ready = dict(self._poll.poll(None if timeout is None else int(timeout * 1000) + 1))
        if self._waker in ready:
            with suppress(BlockingIOError):
                os.eventfd_read(self._waker)
        if self._descriptor not in ready:
            return ()
        data = os.read(self._descriptor, 65_536)
        changed = set()
        offset = 0
        while offset < len(data):
            watch, mask, _, length = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size + length
            if mask & _OVERFLOW:
                return None
            path = self._paths.get(watch)
            if path is not None:
                changed.add(path)
            if mask & _IGNORED:
                self._paths.pop(watch, None)
        return changed

    def wake(self) -> None:
        """Let `wait` return. From any thread; nothing once it is closed."""
        with self._lock:
            if self._waker >= 0:
                os.eventfd_write(self._waker, 1)

    def close(self) -> None:
        """Free both descriptors. Idempotent."""
        with self._lock:
            descriptors = self._descriptor, self._waker
            self._descriptor = self._waker = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def forget(self) -> None:
        """Close the child's copies; the parent's watches stay."""
        self._lock = threading.RLock()  # another thread may have had it
        self.close()


def _last_error(path: str | None = None) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
