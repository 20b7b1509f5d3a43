"""A fence for files: it keeps newer holders out of them until an operation is over.

::

    fence = FileFence("/srv/accounts/fences")
    with client.lock("alice") as grant, fence.guard("alice", grant):
        ...  # read and write the files of alice
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from coordlock.errors import Unsupported
from coordlock.fencing.fence import GuardingFence
from coordlock.fencing.markfile import Damaged, MarkFile, Record, sync
from coordlock.fencing.marks import Marks
from coordlock.fencing.token import FencingToken, Presented, check_resource
from coordlock.model.names import file_name
from coordlock.runtime.guards import block
from coordlock.runtime.shared_file import foreign

__all__ = ["FileFence"]


class FileFence(GuardingFence):
    """Protects files of one machine, from all processes and threads of one user.

    ``directory`` is the fence's own, on a local disk, and made with mode 0700 where there is none.
    Each resource has a file of some sixty bytes in it. Raises OSError as it comes, and
    `Unsupported` where there is no flock(2), or on a file system that several machines may share,
    such as NFS, unless ``trust_filesystem``: two machines may not see each other's locks there.

    A token that is new is on the disk before its block begins, so after a power cut, too, nothing
    that was written in a block can be there without the token. An equal one writes nothing.

    There is no async twin, because nothing waits for a disk without a thread: put the guard and
    what it guards into one function, for ``asyncio.to_thread``.

    The operating system holds newer tokens back until the block or its process ends. So a process
    that is stopped INSIDE of a block, even by SIGSTOP, holds up the next one until it continues or
    is killed: no time limit would be safe. The fence cannot hold back writers that don't use it,
    nor what outlives the block, such as a forked child or a program that was started in it.
    Deleting or emptying a file of the fence makes it forget; `forget` does so safely.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, trust_filesystem: bool = False
    ) -> None:
        if sys.platform == "win32":
            raise Unsupported("FileFence needs flock(2), which Windows does not have")
        self._directory: Final = os.path.realpath(directory)
        _make(self._directory)
        if not trust_filesystem and (kind := foreign(self._directory)):
            raise Unsupported(
                f"FileFence covers one machine, and {self._directory} is on {kind}: choose a "
                "directory on a local disk or, if no other machine uses that file system, pass "
                "trust_filesystem=True"
            )

    @block
    def guard(self, resource: str, token: Presented, shared: bool = False) -> Iterator[None]:
        """Check, and hold all other tokens back until the block ends: see `GuardingFence.guard`.

        Blocks of one resource run one at a time, those of equal tokens and of readers too. A guard
        inside of another of the same resource and thread would wait for itself: RuntimeError.
        Raises OSError for a file that is damaged, or can't be written.
        """
        presented = FencingToken.of(token, shared)
        with self._locked(resource, os.O_CREAT) as file:
            file.admit(presented)
            yield

    def marks(self, resource: str) -> Marks:
        """The newest tokens seen. Does not wait for a block."""
        with suppress(FileNotFoundError):
            with suppress(Damaged):  # unless it was just being written
                return Record.decode(Path(self._path(resource)).read_bytes()).marks
            with self._locked(resource) as file:
                return file.read().marks
        return Marks()

    def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``, also if it is damaged: see `Fence.forget`."""
        with suppress(FileNotFoundError), self._locked(resource) as file:
            os.unlink(file.path)
            sync(self._directory)

    @contextmanager
    def _locked(self, resource: str, flags: int = 0) -> Iterator[MarkFile]:
        path = self._path(resource)
        while True:
            file = MarkFile(resource, path, flags)
            try:
                file.lock()
                if file.is_in_place():  # else it was removed, and the next attempt finds a new file
                    yield file
                    return
            finally:
                file.close()

    def _path(self, resource: str) -> str:
        # Folding, because the fence need not know whether the file system does it.
        return os.path.join(self._directory, file_name(check_resource(resource), folds=True))


def _make(directory: str) -> None:
    """Make ``directory`` where there is none, to stay through a power cut."""
    if not os.path.isdir(directory):
        parent = os.path.dirname(directory)
        _make(parent)
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        sync(parent)
