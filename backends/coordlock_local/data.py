"""Data: one SQLite file for all keys, and a lock of coordlock's own around each use of it.

SQLite's own locks are POSIX record locks, which a process loses when anything in it opens and
closes the file: see `flock`. So SQLite uses none (``vfs=unix-none``), and each process that reads
or writes holds an exclusive flock(2) on another file. A process that is killed meanwhile leaves a
journal, from which the next process restores the former state. While a process is stopped inside,
the others wait; the error then names that process.

A guarded write comes before everything that a later holder does. The writer looks at the guards
while it has the lock. Whoever removes one of them afterwards, the next holder needs the lock too,
so it reads and writes after this write. The write counts from the moment of that look, at which
the guards stood.

Followers hear of each write. A follower subscribes to the key or the folder, and then reads. A
writer tells the subscribers after it has released the lock. Readings need the lock, too. So a
follower that reads before a write had subscribed before the writer looked; every other follower
reads what was written. If the writer is killed in between, followers see its write when they read
again, as they do now and then.

No connection outlives a use, so no child inherits one.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from urllib.parse import quote

from coordlock.backend import Delete, Expect, Listing, Operation, Put, Read, VersionedValue, Written
from coordlock.errors import BackendError, BackendUnavailable, VersionMismatch
from coordlock.model.contender import Contender
from coordlock.runtime.shared_file import close_kept, keep_from_children
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy
from coordlock_local.flock import try_lock, unlock
from coordlock_local.pipes import publish
from coordlock_local.queue import verify

__all__ = ["DataFile"]

T = TypeVar("T")

_SCHEMA: Final = """
    CREATE TABLE kept (
        key TEXT PRIMARY KEY, folder TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX kept_in ON kept (folder, key);
    CREATE TABLE revision (number INTEGER NOT NULL);
    INSERT INTO revision VALUES (0);
"""
#: What SQLite keeps as the file's user_version. Columns and tables that this release doesn't know
#: don't change it.
_VERSION: Final = 1


class DataFile:
    """The data of a directory. Every method raises `Busy` while another one is at work."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def read(self, where: str, guard: Contender | None = None) -> Listing:
        """See `Backend.read`."""

        def look(kept: sqlite3.Connection) -> Listing:
            verify(self._directory, () if guard is None else (guard,))
            return _listing(kept, where)

        return self._hold(look)

    def names(self, folder: str, first: int | None, split: str) -> list[str]:
        """See `Backend.names`."""
        facts = folder, folder + split, -1 if first is None else first

        def look(kept: sqlite3.Connection) -> list[tuple[str]]:
            chosen = "SELECT key FROM kept WHERE folder = ? AND key {} ? ORDER BY key LIMIT ?"
            parts = (kept.execute(chosen.format(sign), facts).fetchall() for sign in ("<", ">="))
            return [*next(parts), *next(parts)]

        return [key.removeprefix(folder) for (key,) in self._hold(look)]

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender]) -> Written:
        """See `Backend.write`."""

        def act(kept: sqlite3.Connection) -> Written:
            verify(self._directory, guards)
            revision = _write(kept, operations)
            values = dict[str, VersionedValue]()
            for one in operations:
                if isinstance(one, Read):
                    values.update(_listing(kept, one.key).values)
            return Written(revision, time.time(), values)

        try:
            return self._hold(act)
        finally:  # what failed may have been written
            keys = {one.key for one in operations if isinstance(one, Put | Delete)}
            for where in sorted(keys | {_folder(key) for key in keys}):
                publish(self._directory, self._directory.change(where))

    def _hold(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """The result of ``action``, while no other process uses the data."""
        lock = keep_from_children(
            lambda: self._directory.open(self._directory.data_lock, os.O_RDWR | os.O_CREAT)
        )
        try:
            if not try_lock(self._directory.data_lock, lock.number):
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
                if sys.platform == "darwin":  # see `shared_file.to_disk`
                    kept.execute("PRAGMA fullfsync = ON")
                version = kept.execute("PRAGMA user_version").fetchone()[0]
                if version == 0:
                    kept.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version={_VERSION};COMMIT;")
                elif version != _VERSION:
                    raise BackendError(
                        SERVICE,
                        f"{path} has version {version}, and this release of coordlock knows "
                        f"only version {_VERSION}: upgrade coordlock",
                    )
                return action(kept)
            finally:
                kept.close()
        except sqlite3.Error as error:
            raise _translated(path, error) from error


def _listing(kept: sqlite3.Connection, where: str) -> Listing:
    chosen = "folder = ? ORDER BY key" if where.endswith("/") else "key = ?"
    rows = kept.execute(
        f"SELECT number, key, data, version FROM revision LEFT JOIN kept ON {chosen}", (where,)
    ).fetchall()
    values = {
        key: VersionedValue(data, version) for _, key, data, version in rows if key is not None
    }
    return Listing(values, rows[0][0])


def _write(kept: sqlite3.Connection, operations: Sequence[Operation]) -> int:
    kept.execute("BEGIN")
    try:
        for one in operations:
            if isinstance(one, Expect):
                found = _listing(kept, one.key).values.get(one.key)
                if one.version != (0 if found is None else found.version):
                    raise VersionMismatch(one.key, one.version)
        written = [one for one in operations if isinstance(one, Put | Delete)]
        for one in written:
            if isinstance(one, Put):
                kept.execute(
                    "INSERT INTO kept (key, folder, data, version) VALUES (?, ?, ?, 1)"
                    " ON CONFLICT (key) DO UPDATE SET data = excluded.data, version = version + 1",
                    (one.key, _folder(one.key), one.data),
                )
            else:
                kept.execute("DELETE FROM kept WHERE key = ?", (one.key,))
        if written:
            kept.execute("UPDATE revision SET number = number + 1")
        [revision] = kept.execute("SELECT number FROM revision").fetchone()
    except BaseException:
        if kept.in_transaction:  # SQLite ends it itself where the disk is full
            kept.execute("ROLLBACK")
        raise
    try:
        kept.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise  # while the pages were written: the journal is there, and restores them
        # It may be on the disk, or the next process may restore the former state.
        raise BackendUnavailable(SERVICE, f"{error}; the data may have been written") from error
    return int(revision)


def _folder(key: str) -> str:
    return key.rpartition("/")[0] + "/"


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
