"""Named pipes: how the processes that use a directory tell each other that something has changed.

Each client that waits has a pipe. Other processes write into it the names of what has changed. Its
process alone reads it, and keeps it open for reading and for writing. So those that only have it
open for reading see its end when that process dies, or closes its client.

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
from coordlock.runtime.shared_file import Descriptor, close_kept, keep_from_children, no_fork
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE

__all__ = ["Pipe", "clear", "open_end", "publish", "send", "subscribe", "unsubscribe"]

#: A pipe with fewer unread bytes takes another message: the smallest has 4,096, a name at most 255.
_ROOM_BYTES: Final = 4096 - 512
_READ_BYTES: Final = 65_536
#: What the opening of a pipe for writing fails with when no process reads it.
_ENDED: Final = frozenset({errno.ENXIO, errno.ENOENT})
#: A file system that refuses with one of these has no named pipes.
_UNKNOWN_KIND: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})


class Pipe:
    """The pipe ``id`` of this process."""

    def __init__(self, directory: Directory, id: str) -> None:
        """Make it. Raises `BackendError` on a file system that has no named pipes."""
        self._path: Final = directory.pipe(id)
        self._descriptor: Final = keep_from_children(partial(_made, directory, self._path))
        self._rest = b""

    def read(
        self, timeout: float | None, ends: Collection[int]
    ) -> tuple[set[str] | None, set[int]]:
        """Wait until somebody has written, or one of ``ends`` has ended, for up to ``timeout`` s.

        What was written, None if some of it may be lost; and which descriptors have ended. Raises
        OSError when the program has closed the pipe.
        """
        number = self._number()
        poll = select.poll()
        poll.register(number, select.POLLIN)
        for end in ends:
            poll.register(end, 0)
        ready = poll.poll(None if timeout is None else int(timeout * 1000) + 1)
        ended = {found for found, _ in ready if found != number}
        return (self._drained() if len(ready) > len(ended) else set()), ended

    def _drained(self) -> set[str] | None:
        data, number = self._rest, self._number()
        with suppress(BlockingIOError):
            while True:
                data += os.read(number, _READ_BYTES)
        lines, _, self._rest = data.rpartition(b"\n")
        return None if len(data) > _ROOM_BYTES else set(os.fsdecode(lines).split("\n"))

    def wake(self) -> bool:
        """Let `read` return; False if the pipe is closed."""
        if self._descriptor.status() is None:
            return False
        with suppress(BlockingIOError):  # it is full, so `read` returns
            os.write(self._descriptor.number, b"\n")
        return True

    def close(self) -> None:
        """Remove it. Idempotent; no thread may be in `read`."""
        with suppress(OSError):
            os.unlink(self._path)
        close_kept(self._descriptor)

    def _number(self) -> int:
        if self._descriptor.status() is None:
            raise OSError(errno.EBADF, "the program closed a descriptor that belongs to coordlock")
        return self._descriptor.number


def _made(directory: Directory, path: str) -> int:
    """Make the pipe ``path``. It gets its name when it has its reader, so `clear` leaves it."""
    new = f"{path}.new"
    while True:
        try:
            directory.make_pipe(new)
        except OSError as error:
            if error.errno not in _UNKNOWN_KIND:
                raise
            raise BackendError(
                SERVICE,
                f"{directory.root} is on a file system that has no named pipes: choose another "
                "directory, with local:///path or XDG_STATE_HOME",
            ) from error
        with suppress(FileNotFoundError):  # another process took it for that of a dead one
            number = directory.open(new, os.O_RDWR | os.O_NONBLOCK)
            try:
                os.rename(new, path)
            except BaseException:
                os.close(number)
                raise
            return number


def send(directory: Directory, id: str, name: str) -> bool:
    """Write ``name`` into the pipe ``id``; False if its process is known to have ended.

    True proves nothing: a process that waits for that end may not have seen it yet.
    """
    path = directory.pipe(id)
    try:
        with no_fork:  # a child would keep the pipe from ending
            writing = directory.open(path, os.O_WRONLY | os.O_NONBLOCK)
            try:
                # If its process ends now, the system sends SIGPIPE to a writer without a reader.
                reading = directory.open(path, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    os.write(writing, os.fsencode(name) + b"\n")
                finally:
                    os.close(reading)
            finally:
                os.close(writing)
    except OSError as error:
        if error.errno is None:  # a signal handler's
            raise
        # Others say nothing of it: it is full, so its reader looks at everything; or this process
        # has too many open files.
        return error.errno not in _ENDED
    return True


def open_end(directory: Directory, id: str) -> Descriptor | None:
    """A descriptor that ends with the process of the pipe ``id``; None if there is no such pipe."""
    path = directory.pipe(id)
    open_pipe = partial(directory.open, path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with no_fork:
            end = keep_from_children(open_pipe)
            # Of a pipe that has ended before, the system reports the end after another writer.
            with suppress(OSError):
                os.close(directory.open(path, os.O_WRONLY | os.O_NONBLOCK))
            return end
    except OSError:
        return None


# Which pipes are told of a change: a directory for each thing, with an empty file for each pipe.


def subscribe(directory: Directory, path: str, id: str) -> None:
    """Have `publish` of ``path`` write into the pipe ``id``."""
    while True:
        directory.make(path)
        with suppress(FileNotFoundError):  # another process has unsubscribed at this moment
            os.close(directory.open(f"{path}/{id}", os.O_WRONLY | os.O_CREAT))
            return


def unsubscribe(path: str, id: str) -> None:
    """Undo `subscribe`. Idempotent."""
    with suppress(OSError):
        os.unlink(f"{path}/{id}")
    with suppress(OSError):  # others have subscribed
        os.rmdir(path)


def publish(directory: Directory, path: str, name: str) -> None:
    """Write ``name`` into all pipes that are subscribed to ``path``."""
    if not os.access(path, os.F_OK):  # the exception of `listdir` takes three times as long
        return
    ids: list[str] = []
    with suppress(OSError):  # the last subscriber has left
        ids = os.listdir(path)
    for id in ids:
        if not send(directory, id, name):
            unsubscribe(path, id)


def clear(directory: Directory) -> None:
    """Remove the pipes of processes that have ended, and what these have subscribed to."""
    living = set(os.listdir(directory.pipes))
    for id in list(living):
        try:
            with no_fork:
                os.close(directory.open(directory.pipe(id), os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno == errno.ENXIO:  # nobody reads it
                living.remove(id)
                with suppress(OSError):
                    os.unlink(directory.pipe(id))
    for kind in (directory.observed, directory.changes):
        for thing in os.listdir(kind):
            path = f"{kind}/{thing}"
            with suppress(OSError):  # gone meanwhile, or not empty
                for id in set(os.listdir(path)) - living:
                    if not os.path.lexists(directory.pipe(id)):  # else it is newer
                        unsubscribe(path, id)
                os.rmdir(path)
