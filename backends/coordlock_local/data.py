"""Data: one SQLite file for all keys, and a lock of coordlock's own around each use of it.

SQLite's own locks are POSIX record locks, which a process loses when anything in it opens and
closes the file: see `flock`. So it is told to use none (``vfs=unix-none``), and whoever reads or
writes holds an exclusive flock(2) on another file. A process that is killed meanwhile leaves a
journal, from which the next one restores what was there before; one that is stopped keeps the
others waiting, and they are told which process it is.

Why a guarded write comes before what a later holder does. The guards are looked at while the lock
is held. Whatever removes one of them afterwards, its own process or another, the next holder reads
and writes data after this write, because it needs the lock for that, too. So the write counts from
the moment of that look, at which the guards stood.

How followers hear of a write. A follower makes a file named after the key or the folder, listens to
it, and then reads. A writer opens the files of what it writes while it holds the lock, before the
commit, and closes them once it has given the lock back; the system does that for a process that is
killed. Readings need the lock too. So a follower that reads before a write had made its file before
the writer looked for it, and hears the closing; any other one reads what was written.

No connection outlives a use, so none is inherited by a child.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote

from coordlock.backend import Expect, Listing, Operation, Put, Stored
from coordlock.errors import BackendError, BackendUnavailable, Evicted, VersionMismatch
from coordlock.model.contender import Contender
from coordlock_local.descriptor import Descriptor
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy
from coordlock_local.flock import close_kept, keep_from_children, try_lock, unlock
from coordlock_local.slots import Place, stands

__all__ = ["DataFile"]

T = TypeVar("T")

_SCHEMA: Final = """
    CREATE TABLE kept (
        key TEXT PRIMARY KEY, folder TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX kept_in ON kept (folder, key);
    CREATE TABLE revision (number INTEGER NOT NULL);
    INSERT INTO revision VALUES (0);
    PRAGMA user_version = 1;
"""


class DataFile:
    """The data of a directory. Every method raises `Busy` while another one is at work."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def read(self, where: str) -> Listing:
        """See `Data.read`."""
        return self._hold(lambda kept: _listing(kept, where))

    def fetch(self, contender: Contender, key: str) -> Stored | None:
        """See `Transactions.fetch`."""

        def look(kept: sqlite3.Connection) -> Stored | None:
            self._check([contender])
            return _stored(kept, key)

        return self._hold(look)

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender]) -> int:
        """See `Data.write`."""
        notices: list[Descriptor] = []

        def act(kept: sqlite3.Connection) -> int:
            self._check(guards)
            notices.extend(self._notices(operations))
            return _write(kept, operations)

        try:
            return self._hold(act)
        finally:
            while notices:  # followers hear this, once they can read
                close_kept(notices.pop())

    def _notices(self, operations: Sequence[Operation]) -> Iterator[Descriptor]:
        """What followers listen to of what ``operations`` write, opened: its closing tells them."""
        keys = {one.key for one in operations if not isinstance(one, Expect)}
        for where in sorted(keys | {_folder(key) for key in keys}):
            with suppress(FileNotFoundError):  # nobody follows it
                yield keep_from_children(
                    partial(self._directory.open, self._directory.change(where), os.O_WRONLY)
                )

    def _check(self, guards: Sequence[Contender]) -> None:
        for contender in guards:
            if not stands(self._directory, Place.of(contender)):
                raise Evicted(contender.key)

    def _hold(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """The result of ``action``, which excludes all others meanwhile."""
        lock = keep_from_children(
            lambda: self._directory.open(self._directory.data_lock, os.O_RDWR | os.O_CREAT)
        )
        try:
            if not try_lock(lock.number) or os.fstat(lock.number).st_nlink == 0:
                raise Busy
            return self._use(action)
        finally:
            try:
                if lock.status() is not None:
                    unlock(lock.number)
            finally:
                close_kept(lock)

    def _use(self, action: Callable[[sqlite3.Connection], T]) -> T:
        path = self._directory.data
        # First, so that in a shared directory the group may write it; SQLite's journal follows it.
        os.close(self._directory.open(path, os.O_RDWR | os.O_CREAT))
        try:
            kept = sqlite3.connect(
                f"file:{quote(path)}?mode=rw&vfs=unix-none",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                if kept.execute("PRAGMA user_version").fetchone()[0] == 0:
                    kept.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
                return action(kept)
            finally:
                kept.close()
        except sqlite3.Error as error:
            raise _translated(path, error) from error


def _listing(kept: sqlite3.Connection, where: str) -> Listing:
    column = "folder" if where.endswith("/") else "key"
    rows = kept.execute(
        f"SELECT key, data, version FROM kept WHERE {column} = ? ORDER BY key",
        (where,),
    )
    values = {key: Stored(data, version) for key, data, version in rows}
    return Listing(values, _revision(kept))


def _stored(kept: sqlite3.Connection, key: str) -> Stored | None:
    row = kept.execute("SELECT data, version FROM kept WHERE key = ?", (key,)).fetchone()
    return None if row is None else Stored(*row)


def _write(kept: sqlite3.Connection, operations: Sequence[Operation]) -> int:
    kept.execute("BEGIN")
    try:
        for one in operations:
            if isinstance(one, Expect):
                found = _stored(kept, one.key)
                if one.version != (0 if found is None else found.version):
                    raise VersionMismatch(one.key, one.version)
        written = [one for one in operations if not isinstance(one, Expect)]
        for one in written:
            if isinstance(one, Put):
                kept.execute(
                    "INSERT INTO kept VALUES (?, ?, ?, 1)"
                    " ON CONFLICT (key) DO UPDATE SET data = excluded.data, version = version + 1",
                    (one.key, _folder(one.key), one.data),
                )
            else:
                kept.execute("DELETE FROM kept WHERE key = ?", (one.key,))
        if written:
            kept.execute("UPDATE revision SET number = number + 1")
        revision = _revision(kept)
    except BaseException:
        kept.execute("ROLLBACK")
        raise
    try:
        kept.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise  # while the pages were written: the journal is there, and restores them
        # It may be on the disk, or may be restored from the journal by the next one.
        raise BackendUnavailable(SERVICE, f"{error}; the data may have been written") from error
    return revision


def _folder(key: str) -> str:
    return key.rpartition("/")[0] + "/"


def _revision(kept: sqlite3.Connection) -> int:
    number: int = kept.execute("SELECT number FROM revision").fetchone()[0]
    return number


def _translated(path: str, error: sqlite3.Error) -> BackendError:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return BackendError(SERVICE, f"{path}: {error}; free some space")
    if isinstance(error, sqlite3.OperationalError | sqlite3.DataError):
        return BackendError(SERVICE, f"{path}: {error}")
    return BackendError(
        SERVICE,
        f"{path} is damaged, or no file of coordlock's ({error}): restore it, or delete it with "
        "what applications keep in it",
    )
