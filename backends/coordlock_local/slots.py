"""The file of one queue, in which every contender has a slot.

::

    header    what the file is, the run of the operating system, the queue's name
    index     for each slot 8 bytes: the token of the contender that stands there, or 0
    records   for each slot a page with the contender's token, mode, ids and owner, a line of text

The index alone decides. A contender is in the queue from the write of its token until the write
that replaces it, and each is one system call. Three rules make this safe without a lock for
leaving, so that no process can keep another's contender from leaving:

* Only a process that holds the counter adds a contender: to a slot that is 0, the record first.
* Only the owner makes its slot 0, or, once the owner's process has died, one that holds the
  counter. So an owner looks whether its token is there, and then writes. However long it is stopped
  in between, no other contender can stand there meanwhile.
* A process that evicts a contender holds the counter, and sets the highest bit of the token.

A process that reads without the counter may meet half of a token, or a slot that another contender
takes over. So a token counts only if the record has the same: it was written before the token, and
stays as it is until the token has gone.

Nothing is synchronized with the disk. After a power failure no owner lives, and the header shows
that the file is of an earlier run.
"""

from __future__ import annotations

import errno
import os
from sys import byteorder
from typing import Final, Self

from coordlock.errors import BackendError
from coordlock.model.claim import parse_marker
from coordlock.model.contender import Contender, Entry, Owner
from coordlock.model.names import escape, unescape
from coordlock.runtime.shared_file import seal, unseal
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE

__all__ = ["EVICTED", "Place", "Slots", "header", "leave", "stands"]

#: The bit of an index entry whose contender was evicted.
EVICTED: Final = 1 << 63
_TITLE: Final = "coordlock-queue"
_HEADER: Final = 1024
_COUNT: Final = 65_408
_RECORDS: Final = _HEADER + 8 * _COUNT
#: The size of a record: within one page, so that neither SIGKILL nor a full disk can split it.
_PAGE: Final = 4096


class Place:
    """Where a contender stands: in the file ``path``, in ``slot``, while ``token`` is there."""

    __slots__ = ("path", "slot", "token")

    def __init__(self, path: str, slot: int, token: int) -> None:
        self.path: Final = path
        self.slot: Final = slot
        self.token: Final = token

    @property
    def key(self) -> str:
        """The key of the contender."""
        return f"{self.path}@{self.slot}.{self.token}"

    @classmethod
    def of(cls, contender: Contender) -> Self:
        """Where ``contender`` stands, as its key says."""
        path, _, rest = contender.key.rpartition("@")
        slot, _, token = rest.partition(".")
        return cls(path, int(slot), int(token))


class Slots:
    """An open queue file. Leaving the ``with`` statement closes it."""

    def __init__(
        self, directory: Directory, path: str, flags: int = os.O_RDONLY, header: bytes = b""
    ) -> None:
        """Open ``path``; ``flags`` are those of open(2).

        ``header`` is what `header` gives for the queue, where that is known.
        """
        #: The queue's name, as `read` has found it.
        self.name: str | None = None
        self._path = path
        self._boot = directory.boot
        self._header = header
        self._descriptor = directory.open(path, flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self) -> list[int]:
        """The index, up to the last slot that was ever used.

        Empty for a file that is new, or of an earlier run. Raises `BackendError` for a file that is
        none of coordlock's.
        """
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        count = min(_COUNT, max(0, -((_RECORDS - size) // _PAGE)))
        data = os.pread(self._descriptor, _HEADER + 8 * count, 0)
        if not self._is_current(data[:_HEADER]):
            return []
        return memoryview(data)[_HEADER:].cast("Q").tolist()

    def begin(self) -> None:
        """Make it the file of a queue without contenders."""
        os.ftruncate(self._descriptor, 0)
        self._write(self._header, 0)

    def add(self, slot: int, token: int, entry: Entry, session: str) -> None:
        """Let a contender stand in the free ``slot``."""
        if slot >= _COUNT:
            raise BackendError(SERVICE, f"{self._path} has room for {_COUNT:,} contenders")
        fields = f"{token} {entry.claim.marker} {entry.id} {session} "
        record = seal(fields + entry.owner.encode().decode("ascii"))
        if len(record) > _PAGE:
            raise BackendError(SERVICE, f"the description of the owner is over {_PAGE} bytes long")
        self._write(record, _RECORDS + _PAGE * slot)
        self.put(slot, token)

    def put(self, slot: int, value: int) -> None:
        """Write an entry of the index."""
        self._write(value.to_bytes(8, byteorder), _HEADER + 8 * slot)

    def get(self, slot: int) -> int:
        """Read an entry of the index."""
        return int.from_bytes(os.pread(self._descriptor, 8, _HEADER + 8 * slot), byteorder)

    def contender(self, slot: int, token: int, *, owners: bool = False) -> Contender | None:
        """The contender that stands in ``slot`` with ``token``; None when it does not any more."""
        line, _, _ = os.pread(self._descriptor, _PAGE, _RECORDS + _PAGE * slot).partition(b"\n")
        try:
            found, marker, id, session, owner = unseal(line + b"\n").split(" ", 4)
        except ValueError:
            found = marker = id = session = owner = ""
        if found != str(token):
            if self.get(slot) == token:
                raise _damaged(self._path)
            return None
        return Contender(
            id,
            Place(self._path, slot, token).key,
            parse_marker(marker),
            token,
            token,
            session,
            Owner.decode(owner.encode()) if owners else None,
        )

    def _is_current(self, header: bytes) -> bool:
        """Whether it has a header, and one of this run of the operating system."""
        if header == self._header:
            return True
        line = header.rstrip(b"\0")
        if not line:
            return False
        try:
            title, boot, escaped = unseal(line).split(" ")
        except ValueError:
            title = boot = escaped = ""
        self.name = unescape(escaped)
        if title != _TITLE or self.name is None:
            raise _damaged(self._path)
        return boot == self._boot and not self._header

    def _write(self, data: bytes, offset: int) -> None:
        if os.pwrite(self._descriptor, data, offset) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)


def header(directory: Directory, name: str) -> bytes:
    """The header of the queue ``name`` in this run of the operating system."""
    return seal(f"{_TITLE} {directory.boot} {escape(name)}").ljust(_HEADER, b"\0")


def stands(directory: Directory, place: Place) -> bool:
    """Whether the contender at ``place`` is in its queue. Its process may have died, though."""
    try:
        descriptor = directory.open(place.path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return _value(descriptor, place) == place.token
    finally:
        os.close(descriptor)


def leave(directory: Directory, place: Place) -> bool:
    """Take this process's own contender away from ``place``; whether it was there. Idempotent."""
    try:
        descriptor = directory.open(place.path, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        value = _value(descriptor, place)
        if value & ~EVICTED != place.token:
            return False
        if os.pwrite(descriptor, bytes(8), _HEADER + 8 * place.slot) != 8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), place.path)
        return value == place.token
    finally:
        os.close(descriptor)


def _value(descriptor: int, place: Place) -> int:
    return int.from_bytes(os.pread(descriptor, 8, _HEADER + 8 * place.slot), byteorder)


def _damaged(path: str) -> BackendError:
    return BackendError(
        SERVICE, f"{path} is damaged, or no file of coordlock's: delete it while no lock is in use"
    )
