"""The file of one queue, in which every contender has a slot.

::

    page 0      the header: a line with what the file is, its version, and the queue's name
    page 1      the index: for each of 64 slots 8 bytes, the token of its contender, or 0
    64 pages    the records: for each slot a line with the contender's token, mode, ids and owner

More indexes follow as they are needed, each with its records. Readers ignore further fields and
lines.

The index alone decides. A contender is in the queue from the write of its token until the write
that replaces it, and each is one system call. Leaving takes no lock, so no process can keep
another's contender from leaving. Three rules make this safe:

* Only a process that holds the counter adds a contender: to a slot that is 0, the record first.
* Only its owner sets a slot to 0, or, once the owner's process has died, a process that holds the
  counter. An owner looks whether its token is there, and then writes. However long it is stopped
  in between, no other contender can take the slot meanwhile.
* A process that evicts a contender holds the counter, and sets the highest bit of the token. It
  writes the highest byte alone, which is 0 in tokens. So where the owner has set the slot to 0 in
  the meantime, that bit remains without a token, and such a slot is free.

A process that reads without the counter may read half of a token, or a slot that another contender
takes over. So a token counts only if the record has the same token: the record was written before
the index, and stays unchanged until the token has gone.

Nothing is synchronized with the disk. After a power failure no owner lives, and what is left of a
contender counts for nothing.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Container
from contextlib import suppress
from sys import byteorder
from typing import Final, NamedTuple, Self

from coordlock.errors import BackendError
from coordlock.model.claim import parse_marker
from coordlock.model.contender import Contender, Entry, Owner
from coordlock.model.names import escape, unescape
from coordlock.runtime.shared_file import seal, unseal
from coordlock_local.counter import VERSION
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE

__all__ = [
    "EVICTED",
    "Slot",
    "Slots",
    "header",
    "queued",
    "record",
    "standing",
    "stands",
]

#: The bit of an index entry whose contender was evicted.
EVICTED: Final = 1 << 63
_TITLE: Final = "coordlock-queue"
#: A record is within one page of memory, so that neither SIGKILL nor a full disk can split it.
_PAGE: Final = 4096
#: Few, so that in most queues all of the index is soon read.
_SLOTS: Final = 64
_BLOCK_BYTES: Final = _PAGE * (1 + _SLOTS)


class Slot(NamedTuple):
    """Where a contender stands: in the file ``path``, at ``number``, while ``token`` is there."""

    path: str
    number: int
    token: int

    @property
    def queue(self) -> str:
        """What messages call its queue."""
        return os.path.basename(self.path)

    @property
    def key(self) -> str:
        """The key of the contender."""
        return f"{self.path}@{self.number}.{self.token}"

    @classmethod
    def of(cls, contender: Contender) -> Self:
        """The slot of ``contender``, as its key says."""
        path, _, place = contender.key.rpartition("@")
        number, _, token = place.partition(".")
        return cls(path, int(number), int(token))


class Slots:
    """An open queue file. Leaving the ``with`` statement closes it."""

    def __init__(self, directory: Directory, path: str, flags: int = 0) -> None:
        """Open ``path`` for reading and writing, with further ``flags`` of open(2)."""
        self._path = path
        self._descriptor = directory.open(path, os.O_RDWR | flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def contents(self) -> tuple[str | None, list[int]]:
        """The queue's name, None for one of coordlock's own, and the index.

        The index is empty for a file that is new, in which `begin` comes first. Raises
        `BackendError` for a file that coordlock did not write.
        """
        header = os.pread(self._descriptor, _PAGE, 0)
        if header == bytes(len(header)):
            return None, []
        line, _, _ = header.partition(b"\n")
        with suppress(ValueError):
            title, version, escaped, *_ = unseal(line + b"\n").split(" ")
            if (title, version) == (_TITLE, VERSION):
                return unescape(escaped), self.index()
        raise BackendError(
            SERVICE,
            f"{self._path} is damaged, or no file of this release: delete it while no lock is in "
            "use",
        )

    def index(self) -> list[int]:
        """The index of a file that has one."""
        data, size, place = b"", 8 * _SLOTS, _PAGE
        while len(page := os.pread(self._descriptor, size, place)) == size:
            data += page
            place += _BLOCK_BYTES
        index = memoryview(data).cast("Q").tolist()
        # What an eviction leaves that met a release: a bit without a token.
        return [0 if value == EVICTED else value for value in index] if EVICTED in index else index

    def begin(self, name: str) -> None:
        """Make it the file of the queue ``name``, without contenders."""
        os.ftruncate(self._descriptor, 0)
        self._write(header(name) + bytes(_PAGE), 0)

    def add(self, slot: int, token: int, record: bytes) -> None:
        """Let a contender stand in the free ``slot``, with what `record` gives for it."""
        self._write(record, _record(slot))
        self.put(slot, token)

    def put(self, slot: int, value: int) -> None:
        """Write an entry of the index."""
        self._write(value.to_bytes(8, byteorder), _entry(slot))

    def free(self, slot: int, id: str, own: Container[str]) -> None:
        """Set an entry to 0, if the contender ``id`` is still one of this process's ``own``.

        A signal handler may have removed it, and the slot is another's then. Python runs none
        between this look and the call behind it.
        """
        number, nothing, place = self._descriptor, bytes(8), _entry(slot)
        if id in own:
            os.pwrite(number, nothing, place)

    def mark(self, slot: int, token: int) -> None:
        """Evict the contender that stood there with ``token``; the counter must be held."""
        value = (token | EVICTED).to_bytes(8, byteorder)
        at = 7 if byteorder == "little" else 0
        self._write(value[at : at + 1], _entry(slot) + at)

    def get(self, slot: int) -> int:
        """Read an entry of the index."""
        return int.from_bytes(os.pread(self._descriptor, 8, _entry(slot)), byteorder)

    def contender(self, slot: int, token: int, *, owners: bool = False) -> Contender | None:
        """The contender that stands in ``slot`` with ``token``; None when it does not any more.

        Without its ``value``.
        """
        page = os.pread(self._descriptor, _PAGE, _record(slot))
        line, _, _ = page.partition(b"\n")
        try:
            found, marker, id, session, owner = unseal(line + b"\n").split(" ", 4)
        except ValueError:
            return None
        if found != str(token):
            return None
        return Contender(
            id,
            Slot(self._path, slot, token).key,
            parse_marker(marker),
            token,
            token,
            session,
            Owner.decode(owner.encode()) if owners else None,
        )

    def _write(self, data: bytes, offset: int) -> None:
        if os.pwrite(self._descriptor, data, offset) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _entry(slot: int) -> int:
    """Where the index entry of ``slot`` is."""
    return _PAGE + slot // _SLOTS * _BLOCK_BYTES + slot % _SLOTS * 8


def _record(slot: int) -> int:
    """Where the record of ``slot`` is."""
    return _PAGE + slot // _SLOTS * _BLOCK_BYTES + (slot % _SLOTS + 1) * _PAGE


def record(token: int, entry: Entry, session: str) -> bytes:
    """The record of a contender."""
    fields = f"{token} {entry.claim.marker} {entry.id} {session} "
    line = seal(fields + entry.owner.encode().decode("ascii"))
    if len(line) > _PAGE:
        raise BackendError(SERVICE, f"the description of the owner is over {_PAGE} bytes long")
    return line


def header(name: str) -> bytes:
    """The header of the queue ``name``."""
    return seal(f"{_TITLE} {VERSION} {escape(name)}").ljust(_PAGE, b"\0")


def queued(index: list[int], below: int = EVICTED) -> list[int]:
    """The tokens in ``index`` that are smaller than ``below``, in order."""
    tokens = sorted(index)
    return tokens[bisect_right(tokens, 0) : bisect_left(tokens, below)]


def standing(directory: Directory, path: str) -> list[int]:
    """The tokens in the queue of the file ``path``, in order. Dead contenders have theirs, too."""
    try:
        with Slots(directory, path) as slots:
            return queued(slots.index())
    except FileNotFoundError:
        return []


def stands(directory: Directory, slot: Slot) -> bool:
    """Whether the contender of ``slot`` is in its queue. Its process may have died, though."""
    try:
        with Slots(directory, slot.path) as slots:
            return slots.get(slot.number) == slot.token
    except FileNotFoundError:
        return False
