"""The file of one queue, in which every contender has a slot.

::

    page 0      the header: what the file is, the run of the operating system, the queue's name; and
                in its last 8 bytes how many indexes there are
    page 1      the index: for each of 512 slots 8 bytes, the token of the contender that stands
                there, or 0
    512 pages   the records: for each slot the contender's token, mode, ids and owner, a line of
                text

and then again an index and its records, as often as it takes.

The index alone decides. A contender is in the queue from the write of its token until the write
that replaces it, and each is one system call. Three rules make this safe without a lock for
leaving, so that no process can keep another's contender from leaving:

* Only a process that holds the counter adds a contender: to a slot that is 0, the record first.
* Only the owner makes its slot 0, or, once the owner's process has died, one that holds the
  counter. So an owner looks whether its token is there, and then writes. However long it is stopped
  in between, no other contender can stand there meanwhile.
* A process that evicts a contender holds the counter, and sets the highest bit of the token. It
  writes the highest byte alone, which is 0 in tokens. So where the owner has made the slot 0 in the
  meantime, what remains is that bit without a token, and such a slot is free.

A process that reads without the counter may meet half of a token, or a slot that another contender
takes over. So a token counts only if the record has the same: it was written before the token, and
stays as it is until the token has gone.

Nothing is synchronized with the disk. After a power failure no owner lives, and the header shows
that the file is of an earlier run.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from sys import byteorder
from typing import Final, Self

from coordlock.errors import BackendError
from coordlock.model.claim import parse_marker
from coordlock.model.contender import Contender, Entry, Owner
from coordlock.model.names import escape, unescape
from coordlock.runtime.shared_file import seal, unseal
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE

__all__ = ["EVICTED", "Place", "Slots", "header", "leave", "stands", "tell"]

#: The bit of an index entry whose contender was evicted.
EVICTED: Final = 1 << 63
_TITLE: Final = "coordlock-queue"
#: A record is within one page of memory, so that neither SIGKILL nor a full disk can split it.
_PAGE: Final = 4096
_INDEXES: Final = _PAGE - 8
_SLOTS: Final = 512
_BLOCK: Final = _PAGE * (1 + _SLOTS)
_NOTHING: Final = bytes(_PAGE)


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
        #: Whether contenders may be added, as `read` has found it: else `begin` first.
        self.ready = False
        self._path = path
        self._boot = directory.boot
        self._header = header
        self._indexes = 1
        self._descriptor = directory.open(path, flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self) -> list[int]:
        """The index, up to the last slot that is not free.

        Empty for a file that is new, or of an earlier run, and not `ready`. Raises `BackendError`
        for a file that is none of coordlock's.
        """
        data = os.pread(self._descriptor, 2 * _PAGE, 0)
        self.ready = self._is_current(data[:_INDEXES])
        return self._index(data) if self.ready else []

    def former(self) -> Iterator[Contender]:
        """The contenders in a file of another run, as far as they can be read."""
        data = os.pread(self._descriptor, 2 * _PAGE, 0)
        for slot, token in enumerate(self._index(data) if len(data) == 2 * _PAGE else ()):
            with suppress(BackendError):
                contender = self.contender(slot, token & ~EVICTED) if token else None
                if contender is not None:
                    yield contender

    def _index(self, data: bytes) -> list[int]:
        most = os.fstat(self._descriptor).st_size // _BLOCK + 1
        self._indexes = min(int.from_bytes(data[_INDEXES:_PAGE], byteorder), most)
        data = data[_PAGE:]
        for number in range(1, self._indexes):
            data += os.pread(self._descriptor, _PAGE, _entry(number * _SLOTS))
        if data == _NOTHING:
            return []
        end = len(data.rstrip(b"\0"))
        index = memoryview(data)[: end + -end % 8].cast("Q").tolist()
        if EVICTED in index:  # an eviction that met a release
            index = [0 if value == EVICTED else value for value in index]
            while index and not index[-1]:
                index.pop()
        return index

    @property
    def can_shrink(self) -> bool:
        """Whether a file without contenders, as `read` has found it, is larger than it need be."""
        return self._indexes > 1

    def begin(self) -> None:
        """Make it the file of a queue without contenders."""
        os.ftruncate(self._descriptor, 0)
        one = (1).to_bytes(8, byteorder)
        self._write(self._header + one + bytes(_PAGE), 0)
        self._indexes = 1

    def add(self, slot: int, token: int, entry: Entry, session: str) -> None:
        """Let a contender stand in the free ``slot``."""
        fields = f"{token} {entry.claim.marker} {entry.id} {session} "
        record = seal(fields + entry.owner.encode().decode("ascii"))
        if len(record) > _PAGE:
            raise BackendError(SERVICE, f"the description of the owner is over {_PAGE} bytes long")
        self._write(record, _record(slot))
        if slot >= self._indexes * _SLOTS:
            self._write((slot // _SLOTS + 1).to_bytes(8, byteorder), _INDEXES)
        self.put(slot, token)

    def put(self, slot: int, value: int) -> None:
        """Write an entry of the index."""
        self._write(value.to_bytes(8, byteorder), _entry(slot))

    def mark(self, slot: int, token: int) -> None:
        """Evict the contender that stood there with ``token``; the counter must be held."""
        value = (token | EVICTED).to_bytes(8, byteorder)
        at = 7 if byteorder == "little" else 0
        self._write(value[at : at + 1], _entry(slot) + at)

    def get(self, slot: int) -> int:
        """Read an entry of the index."""
        return int.from_bytes(os.pread(self._descriptor, 8, _entry(slot)), byteorder)

    def contender(self, slot: int, token: int, *, owners: bool = False) -> Contender | None:
        """The contender that stands in ``slot`` with ``token``; None when it does not any more."""
        line, _, _ = os.pread(self._descriptor, _PAGE, _record(slot)).partition(b"\n")
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
        if title != _TITLE or (self.name is None and not escaped.startswith("@")):
            raise _damaged(self._path)
        return boot == self._boot and not self._header

    def _write(self, data: bytes, offset: int) -> None:
        if os.pwrite(self._descriptor, data, offset) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)


def _entry(slot: int) -> int:
    """Where the index entry of ``slot`` is."""
    return _PAGE + slot // _SLOTS * _BLOCK + slot % _SLOTS * 8


def _record(slot: int) -> int:
    """Where the record of ``slot`` is."""
    return _PAGE + slot // _SLOTS * _BLOCK + (slot % _SLOTS + 1) * _PAGE


def header(directory: Directory, name: str) -> bytes:
    """The header of the queue ``name`` in this run of the operating system."""
    return seal(f"{_TITLE} {directory.boot} {escape(name)}").ljust(_INDEXES, b"\0")


def stands(directory: Directory, place: Place) -> bool:
    """Whether the contender at ``place`` is in its queue. Its process may have died, though."""
    try:
        with Slots(directory, place.path) as slots:
            return slots.get(place.slot) == place.token
    except (FileNotFoundError, NotADirectoryError):
        return False


def leave(directory: Directory, place: Place) -> bool:
    """Take this process's own contender away from ``place``; whether it was there. Idempotent."""
    try:
        with Slots(directory, place.path, os.O_RDWR) as slots:
            value = slots.get(place.slot)
            if value & ~EVICTED == place.token:
                slots.put(place.slot, 0)
            return value == place.token
    except (FileNotFoundError, NotADirectoryError):
        return False


def tell(directory: Directory, session: str, id: str) -> None:
    """Let the processes that watch a contender know that it has left: see `Directory.watch`."""
    path = directory.watch(session, id)
    try:
        descriptor = directory.open(path, os.O_WRONLY)
    except FileNotFoundError:
        return
    os.close(descriptor)  # which they hear at once: removing a file takes a hundred times as long
    with suppress(FileNotFoundError):
        os.unlink(path)


def _damaged(path: str) -> BackendError:
    return BackendError(
        SERVICE, f"{path} is damaged, or no file of coordlock's: delete it while no lock is in use"
    )
