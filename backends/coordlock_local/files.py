"""The queues' files that a session keeps open: opening one takes longer than what is done in it.

Callers hold the session's lock ``changing``.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final, Self

from coordlock.runtime.shared_file import close_kept, keep_from_children
from coordlock_local.directory import Directory
from coordlock_local.slots import Slots

__all__ = ["Files"]

#: How many stay open.
_MOST: Final = 16


class Files:
    """The files of the queues that were used lately, by their paths."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._kept: dict[str, _Kept] = {}  # the longest open comes first
        self._is_closed = False

    def open(self, path: str, header: bytes) -> Slots:
        """Open the file of a queue, or make it. The caller holds the counter."""
        kept = self.find(path)
        if kept is None:
            if len(self._kept) >= _MOST:
                self._make_room()
            kept = self._kept[path] = _Kept(self._directory, path, header)
            kept.is_there()
        if self._is_closed:  # by another thread, or a signal handler: it is open while it is used
            self.drop(path)
        return kept

    def find(self, path: str) -> Slots | None:
        """The file, if it is open, and still that of this path."""
        kept = self._kept.get(path)
        if kept is None or kept.is_there():
            return kept
        self.drop(path)
        return None

    def drop(self, path: str) -> None:
        """Keep the file no longer."""
        kept = self._kept.pop(path, None)
        if kept is not None:
            kept.let_go()

    def close(self) -> None:
        """Close all, and keep none from now on."""
        self._is_closed = True
        for path in list(self._kept):
            self.drop(path)

    def _make_room(self) -> None:
        self.drop(next(iter(self._kept)))


class _Kept(Slots):
    """A file that `with` statements use and don't close."""

    def __init__(self, directory: Directory, path: str, header: bytes) -> None:
        self._directory = directory
        self._file = keep_from_children(partial(directory.open, path, os.O_RDWR | os.O_CREAT))
        super().__init__(directory, path, header=header, descriptor=self._file.number)
        self._users = 0
        self._is_let_go = False

    def is_there(self) -> bool:
        """Whether the descriptor is still the file's, and the file was not removed.

        Who removes it empties it: it may have another name, of a backup by hard links or on NFS.
        """
        status = self._file.status()
        if status is None or not status.st_nlink or not status.st_size:
            return False
        self._size = status.st_size
        return True

    def let_go(self) -> None:
        """Close it; when a signal handler calls this, after the call that it has interrupted."""
        self._is_let_go = True
        if not self._users:
            close_kept(self._file)

    def __enter__(self) -> Self:
        self._users += 1
        if self._is_let_go:  # by a signal handler, after it was found: the number is another file's
            self._file = keep_from_children(partial(self._directory.open, self._path, os.O_RDWR))
            self._descriptor = self._file.number
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if self._is_let_go:
            self.let_go()
