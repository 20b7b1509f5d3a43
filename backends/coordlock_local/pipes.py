"""Named pipes: how the processes that use a directory tell each other that something has changed.

Each session has a pipe. Other processes write into it the names of what has changed. Its process
alone reads it, and keeps it open for reading and for writing. So those that only have it open for
reading see its end when that process dies, or closes its client.

A message only says where to look, and may be lost: its reader looks at everything now and then.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import Final

from coordlock.errors import BackendError
from coordlock.runtime.shared_file import Descriptor, close_kept, keep_from_children
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE

__all__ = ["Pipe", "open_end", "publish", "send", "subscribe", "unsubscribe"]

#: A pipe with fewer unread bytes takes another message: the smallest has 4,096, a name at most 255.
_ROOM_BYTES: Final = 4096 - 512
_READ_BYTES: Final = 65_536


class Pipe:
    """The pipe of this process's session ``id``."""

    def __init__(self, directory: Directory, id: str) -> None:
        """Make it. Raises `BackendError` on a file system that has no named pipes."""
        path = directory.pipe(id)
        try:
            directory.make_pipe(path)
        except PermissionError as error:
            if error.errno != errno.EPERM:
                raise
            raise BackendError(
                SERVICE,
                f"{directory.root} is on a file system that has no named pipes: choose another "
                "directory, with local:///path or XDG_STATE_HOME",
            ) from error
        made = partial(directory.open, path, os.O_RDWR | os.O_NONBLOCK)
        self._descriptor: Final = keep_from_children(made)

    def read(self, timeout: float, ends: Collection[int]) -> tuple[set[str] | None, set[int]]:
        """Wait until somebody has written, or one of ``ends`` has ended, for up to ``timeout`` s.

        What was written, None if some of it may be lost; and which descriptors have ended. Raises
        OSError when the program has closed the pipe.
        """
        number = self._number()
        poll = select.poll()
        poll.register(number, select.POLLIN)
        for end in ends:
            poll.register(end, 0)
        ready = poll.poll(max(0, int(timeout * 1000) + 1))
        ended = {found for found, _ in ready if found != number}
        data = os.read(self._number(), _READ_BYTES) if len(ready) > len(ended) else b""
        return None if len(data) > _ROOM_BYTES else set(os.fsdecode(data).split("\n")), ended

    def wake(self) -> None:
        """Let `read` return, unless the program has closed the pipe."""
        with suppress(OSError):  # of one that is full, too, and then `read` returns
            os.write(self._number(), b"\n")

    def close(self) -> None:
        """Let those that have it open see its end. Idempotent; no thread may be in `read`."""
        close_kept(self._descriptor)

    def _number(self) -> int:
        if self._descriptor.status() is None:
            raise OSError(errno.EBADF, "the program closed a descriptor that belongs to coordlock")
        return self._descriptor.number


def send(directory: Directory, id: str, name: str) -> None:
    """Write ``name`` into the pipe of the session ``id``, if it has one."""
    # If it is full, its reader looks at everything. For reading, too: where its process has died,
    # the system sends SIGPIPE to a writer without a reader.
    with suppress(OSError):
        number = directory.open(directory.pipe(id), os.O_RDWR | os.O_NONBLOCK)
        try:
            os.write(number, os.fsencode(name) + b"\n")
        finally:
            os.close(number)


def open_end(directory: Directory, id: str) -> Descriptor | None:
    """A descriptor that ends with the process of the session ``id``; None if it has no pipe."""
    path = directory.pipe(id)
    try:
        end = keep_from_children(partial(directory.open, path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return None
    # Of a pipe that has ended before, the system reports the end after another writer.
    with suppress(OSError):
        os.close(directory.open(path, os.O_WRONLY | os.O_NONBLOCK))
    return end


# Each observed queue, key or folder has a directory, with an empty file for each session to wake.


def subscribe(directory: Directory, name: str, id: str) -> None:
    """Have `publish` of ``name`` write into the pipe of the session ``id``."""
    path = directory.observers(name)
    while True:
        directory.make(path)
        with suppress(FileNotFoundError):  # another process has unsubscribed at this moment
            os.close(directory.open(f"{path}/{id}", os.O_WRONLY | os.O_CREAT))
            return


def unsubscribe(directory: Directory, name: str, id: str) -> None:
    """Undo `subscribe`. Idempotent."""
    path = directory.observers(name)
    with suppress(OSError):
        os.unlink(f"{path}/{id}")
    with suppress(OSError):  # others have subscribed
        os.rmdir(path)


def publish(directory: Directory, name: str) -> None:
    """Write ``name`` into the pipes of all sessions that are subscribed to it."""
    path = directory.observers(name)
    if not os.access(path, os.F_OK):  # the exception of `listdir` takes three times as long
        return
    with suppress(FileNotFoundError):  # the last subscriber has left
        for id in os.listdir(path):
            send(directory, id, name)
