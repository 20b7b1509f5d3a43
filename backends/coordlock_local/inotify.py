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

from coordlock.runtime.shared_file import Descriptor, closed_in_children, no_fork

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
    """One inotify instance, and a pipe that wakes the thread in `wait`.

    A session ends when its file is unlinked, or when its process ends and the kernel closes the
    file: only that process opens it for writing, and those that evict one of its contenders.

    A program may close all three descriptors and get their numbers for files of its own: then every
    method raises OSError or does nothing. A pipe is an inode of its own, while all inotify
    instances, eventfds and epoll descriptors share one; so only the pipe shows for certain that the
    numbers are still ours. Closing its writing end also ends the sleep of the thread in `wait`.
    """

    #: Notices are trusted, and yet checked: a forked child of the holder may keep a file open.
    interval: float = 5.0

    def __init__(self) -> None:
        """Raises OSError where there is no inotify, or none left for this user."""
        self._lock = threading.RLock()
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._descriptors: list[Descriptor] = []
        self._library = ctypes.CDLL(None, use_errno=True)
        try:
            open_instance = self._library.inotify_init1
        except AttributeError:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
        with no_fork:
            number: int = open_instance(os.O_NONBLOCK | os.O_CLOEXEC)
            if number < 0:
                raise _last_error()
            closed_in_children.add(self._close)
            self._inotify = self._kept(number)
            try:
                self._woken, self._waker = map(self._kept, os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
            except BaseException:
                self.close()
                raise
        self._poll = select.poll()
        self._poll.register(self._inotify.number, select.POLLIN)
        self._poll.register(self._woken.number, select.POLLIN)

    def _kept(self, number: int) -> Descriptor:
        descriptor = Descriptor(number)
        self._descriptors.append(descriptor)
        return descriptor

    def add(self, path: str, *, closed: bool = True) -> None:
        """Tell of ``path``; OSError where it's gone or limits are reached.

        Look at the file afterwards: what happened before is not told.
        """
        mask = _REMOVED | (_CLOSE_WRITE if closed else 0)
        with self._lock:
            self._check()
            number = self._inotify.number
            watch = self._library.inotify_add_watch(number, os.fsencode(path), mask)
            if watch < 0:
                raise _last_error(path)
            if self._watches.get(path, watch) != watch:  # another file has this path now
                self.drop(path)
            self._watches[path] = watch
            self._paths[watch] = path

    def drop(self, path: str) -> None:
        """Tell no more of ``path``."""
        with self._lock:
            watch = self._watches.pop(path, None)
            # The kernel drops those of removed files itself, and never uses their numbers again.
            if watch is not None and self._paths.pop(watch, None) is not None and self._is_open():
                self._library.inotify_rm_watch(self._inotify.number, watch)

    def is_watched(self, path: str) -> bool:
        """Whether it tells of ``path`` still: not of a file that was removed."""
        return self._watches.get(path) in self._paths

    def wait(self, timeout: float | None) -> Collection[str] | None:
        """The paths that may have changed; None when too much happened to tell.

        Raises OSError when the program has closed the descriptors.
        """
        self._check()
        milliseconds = None if timeout is None else int(timeout * 1000) + 1
        ready = dict(self._poll.poll(milliseconds))
        self._check()
        if self._woken.number in ready:
            with suppress(BlockingIOError):
                os.read(self._woken.number, 4096)
        return self._read() if self._inotify.number in ready else ()

    def _read(self) -> Collection[str] | None:
        data = os.read(self._inotify.number, 65_536)
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
            if self._waker.status() is not None:  # whatever has become of the others
                with suppress(OSError):  # it is full, so `wait` returns
                    os.write(self._waker.number, b"\0")

    def close(self) -> None:
        """Free the descriptors. Idempotent."""
        closed_in_children.discard(self._close)
        with self._lock:
            self._close()

    def _close(self) -> None:
        """Close them. In a child, another thread of the parent may have held the lock."""
        is_open = self._is_open()
        for descriptor in self._descriptors:
            # Without the pipe, what seems to be the inotify instance may be the program's.
            if is_open or descriptor is not self._inotify:
                descriptor.close()

    def _is_open(self) -> bool:
        return all(one.status() for one in self._descriptors)

    def _check(self) -> None:
        if not self._is_open():
            raise OSError(errno.EBADF, "the program closed a descriptor that belongs to coordlock")


def _last_error(path: str | None = None) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
