"""ZooKeeper's transaction logs, as far as the making and the removing of znodes goes.

A file ``log.ZXID`` is a header of 16 bytes and then, for each transaction, its Adler-32 (8 bytes),
its length (4), itself in jute's encoding, and a ``B``; zeros follow up to the file's allocated size
(``FileTxnLog``, ``zookeeper.jute``). The server's own tool prints the same as text; a multi it
prints as raw bytes, and what users wrote it prints as it is, so that text can't be taken apart.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final, Literal

__all__ = ["Change", "MalformedLog", "Transaction", "read_log", "read_logs"]

_MAGIC: Final = b"ZKLG\0\0\0\2"
_HEADER: Final = 16
_RECORD: Final = struct.Struct(">qi")
_TRANSACTION: Final = struct.Struct(">qiqqi")
_INT: Final = struct.Struct(">i")

# ZooDefs.OpCode. createContainer and createTTL make znodes that are not ephemeral.
_CREATES: Final = (1, 15)
_LASTING_CREATES: Final = (19, 21)
_DELETES: Final = (2, 20)
_MULTI: Final = 14
_CLOSE: Final = -11
_ERROR: Final = -1


class MalformedLog(ValueError):
    """What no ZooKeeper wrote, or one of a kind that is not known here."""


@dataclass(frozen=True, slots=True)
class Change:
    """A znode was made, by whom it dies if it is ephemeral, or removed."""

    kind: Literal["create", "create ephemeral", "delete"]
    path: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction, with what it changed.

    Attributes:
        zxid: its number in the whole service.
        session: of whom asked for it.
        changes: in order. Those of one that closes a session are only what the server wrote down.
        closes: whether it ends ``session``.
    """

    zxid: int
    session: int
    changes: tuple[Change, ...]
    closes: bool


def read_logs(directory: Path, since: int = 0) -> dict[int, Transaction]:
    """All transactions after ``since`` in one server's data directory, by their zxids."""
    files = sorted(directory.glob("version-2/log.*"), key=_first)
    found: dict[int, Transaction] = {}
    for file, following in zip_longest(files, files[1:]):
        if following is None or _first(following) > since + 1:
            found.update((one.zxid, one) for one in read_log(file) if one.zxid > since)
    return found


def read_log(file: Path) -> Iterator[Transaction]:
    """The transactions in ``file``, up to where it is written whole."""
    data = file.read_bytes()
    if len(data) < _HEADER:
        return  # just opened
    if not data.startswith(_MAGIC):
        raise MalformedLog(f"{file} is no log of version 2")
    position = _HEADER
    while position + _RECORD.size <= len(data):
        checksum, length = _RECORD.unpack_from(data, position)
        start = position + _RECORD.size
        position = start + length + 1
        record = data[start : start + length]
        # The server takes the first one that is not whole for the end as well.
        if length <= 0 or data[position - 1 : position] != b"B" or zlib.adler32(record) != checksum:
            return
        yield _transaction(record)


def _first(file: Path) -> int:
    return int(file.suffix[1:], 16)


def _transaction(record: bytes) -> Transaction:
    session, _, zxid, _, kind = _TRANSACTION.unpack_from(record)
    try:
        changes = tuple(_changes(kind, _Jute(record[_TRANSACTION.size :])))
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedLog(f"transaction {zxid:#x} of type {kind}: {error}") from error
    return Transaction(zxid, session, changes, kind == _CLOSE)


def _changes(kind: int, body: _Jute) -> Iterator[Change]:
    if kind in _CREATES or kind in _LASTING_CREATES:
        path = body.text()
        body.buffer()
        for _ in range(body.integer()):  # the access control list
            body.integer()
            body.text()
            body.text()
        ephemeral = kind in _CREATES and body.boolean()
        yield Change("create ephemeral" if ephemeral else "create", path)
    elif kind in _DELETES:
        yield Change("delete", body.text())
    elif kind == _CLOSE:
        # Servers before 3.6 don't say what went along with the session.
        for _ in range(0 if body.ended else body.integer()):
            yield Change("delete", body.text())
    elif kind == _MULTI:
        parts = [(body.integer(), body.buffer()) for _ in range(body.integer())]
        # One that failed is logged, too, with an error in place of the operation that did.
        if all(part != _ERROR for part, _ in parts):
            for part, data in parts:
                yield from _changes(part, _Jute(data))


class _Jute:
    """Reads jute's encoding: integers are big-endian, texts and buffers have a length before."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def ended(self) -> bool:
        return self._position >= len(self._data)

    def integer(self) -> int:
        (value,) = _INT.unpack_from(self._data, self._position)
        self._position += _INT.size
        return int(value)

    def boolean(self) -> bool:
        self._position += 1
        return self._data[self._position - 1] != 0

    def buffer(self) -> bytes:
        length = max(0, self.integer())  # -1 stands for none
        self._position += length
        data = self._data[self._position - length : self._position]
        if len(data) != length:
            raise struct.error("too short")
        return data

    def text(self) -> str:
        return self.buffer().decode()
