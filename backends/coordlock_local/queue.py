"""A queue: a directory whose entries, in the order of their names, are its contenders.

``<token, 19 digits>-<marker>-<entry id>-<session id>`` tells all that decides; the content is for
people. An entry appears complete, by renaming, while the counter is held. It goes by unlinking, for
which nothing needs to be held, so no process can keep another's contender from leaving.
"""

from __future__ import annotations

import errno
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from coordlock.errors import BackendUnavailable
from coordlock.model.claim import parse_marker
from coordlock.model.contender import Contender, Entry, Owner, Snapshot
from coordlock.model.names import escape, unescape
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE
from coordlock_local.session import LocalSession, is_alive

__all__ = ["Queue", "queue_names", "remove", "sweep"]

_ENTRY: Final = re.compile(r"([0-9]{19})-([a-z0-9]+)-([^-/]+)-([0-9a-f]{32})")
#: How often a queue that changes is read again until two readings agree.
_READINGS: Final = 20
#: How often adding is tried again when the directory is removed, being empty, at that moment.
_ATTEMPTS: Final = 100


class Queue:
    """The queue ``name`` in a directory."""

    def __init__(self, directory: Directory, name: str) -> None:
        self.name: Final = name
        self.path: Final = directory.queue(name)
        self._directory = directory

    def add(
        self, entry: Entry, session: LocalSession, note: Callable[[str], None]
    ) -> Contender | None:
        """Add a contender; None when the session has died meanwhile.

        ``note`` is told each path before there is a file, so that a file is never forgotten.
        Raises `Busy`; called again then, it goes on where it was.
        """
        # No leading digit: it does not count yet.
        draft = os.path.join(self.path, f".{entry.id}-{session.id}")
        missing = False
        for attempt in range(_ATTEMPTS):
            try:
                if missing:
                    self._directory.make(self.path)
                note(draft)
                self._draft(draft, entry)
                with session.counter.held() as tokens:
                    token = tokens.take()
                    name = f"{token:019d}-{entry.claim.marker}-{entry.id}-{session.id}"
                    key = os.path.join(self.path, name)
                    note(key)
                    os.rename(draft, key)
            except FileNotFoundError:
                if not session.is_alive():
                    return None
                missing = True
            except PermissionError:
                # Another user has made it and is about to admit the group.
                if not self._directory.shared or attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.001)
            else:
                return Contender(entry.id, key, entry.claim, token, token, session.id, entry.owner)
        raise BackendUnavailable(SERVICE, f"{self.path} is removed again and again")

    def snapshot(self, upto: Contender | None = None, *, owners: bool = False) -> Snapshot:
        """The queue, or its nearest part up to ``upto``, without the dead ones, which it removes.

        A directory is not read in one step. But contenders before ``upto`` only leave, so one that
        is in the queue all the time is listed. With ``owners`` it is read until two readings agree.
        Entries are never made again, so the queue was like that at a moment between the two
        (Afek et al., "Atomic snapshots of shared memory", 1993).
        """
        names = self._names()
        snapshot = self._select(names, upto, owners)
        for _ in range(_READINGS if owners else 0):
            before, names = names, self._names()
            if names == before:
                break
            snapshot = self._select(names, upto, owners)
        return snapshot

    def find(self, id: str) -> list[str]:
        """The paths of the entry ``id``, drafts too, whatever their session."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return [
            os.path.join(self.path, name)
            for name in names
            if name.startswith(f".{id}-") or f"-{id}-" in name
        ]

    def contender(self, key: str, *, owners: bool = False) -> Contender | None:
        """The contender of the file ``key``; None for other files, and for one that has left."""
        match = _ENTRY.fullmatch(os.path.basename(key))
        if match is None:
            return None
        order, marker, id, session = match.groups()
        owner = None
        if owners:
            try:
                owner = Owner.decode(_content(key)[1])
            except FileNotFoundError:
                return None
        return Contender(id, key, parse_marker(marker), int(order), int(order), session, owner)

    def _draft(self, path: str, entry: Entry) -> None:
        try:
            descriptor = self._directory.create(path)
        except FileExistsError:  # an earlier attempt came so far
            return
        try:
            # The name is for `queue_names`, where the directory's name is a hash.
            content = f"{escape(entry.queue)}\n".encode() + entry.owner.encode()
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)

    def _names(self) -> list[str]:
        return sorted(_entries(self.path))

    def _select(self, names: list[str], upto: Contender | None, owners: bool) -> Snapshot:
        end, wanted = len(names), len(names)
        if upto is not None:
            own = os.path.basename(upto.key)
            end = bisect_right(names, own)
            wanted = upto.claim.window + (end > 0 and names[end - 1] == own)
        lives: dict[str, bool] = {}
        chosen: list[Contender] = []
        # Backwards: as many of the nearest as are asked for, not counting the dead.
        while end and len(chosen) < wanted:
            end -= 1
            contender = self.contender(os.path.join(self.path, names[end]), owners=owners)
            if contender is None:
                continue
            if contender.session not in lives:
                lives[contender.session] = is_alive(self._directory, contender.session)
            if lives[contender.session]:
                chosen.append(contender)
            else:
                with suppress(OSError):  # it does not count, removed or not
                    remove(contender.key)
        return Snapshot(self.name, tuple(reversed(chosen)), omitted=end)


def remove(path: str) -> bool:
    """Remove an entry or a draft; whether it was there. The last one's queue goes with it."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    with suppress(OSError):  # not empty; an `add` that is under way makes it again
        os.rmdir(os.path.dirname(path))
    return True


def queue_names(directory: Directory) -> list[str]:
    """The names of the queues that have entries."""
    found = []
    for component in os.listdir(directory.queues):
        path = os.path.join(directory.queues, component)
        entries = _entries(path)
        name = unescape(component)
        while entries and name is None:  # a hash
            with suppress(FileNotFoundError):  # left just now
                escaped, _ = _content(os.path.join(path, entries.pop()))
                name = unescape(escaped.decode("ascii", "replace"))
        if name is not None and (entries or "=" in component):
            found.append(name)
    return found


def sweep(directory: Directory, sessions: Iterable[str]) -> list[str]:
    """Remove what dead ones among ``sessions`` left, and them; the ids of the dead.

    A session's file goes last, so that the next `open` sweeps again what was not finished.
    """
    dead = [id for id in sessions if not is_alive(directory, id)]
    if not dead:
        return []
    for component in os.listdir(directory.queues):
        path = os.path.join(directory.queues, component)
        with suppress(OSError):  # removed meanwhile; no queue. What stays counts as dead
            for name in os.listdir(path):
                if name.rpartition("-")[2] in dead:
                    remove(os.path.join(path, name))
        with suppress(OSError):  # left empty by a process that died between two steps
            os.rmdir(path)
    for id in dead:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory.sessions, id))
    return dead


def _entries(path: str) -> list[str]:
    try:
        return [name for name in os.listdir(path) if name[:1].isdigit()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _content(path: str) -> tuple[bytes, bytes]:
    """The queue's escaped name and the owner, as an entry says."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        name, _, owner = os.read(descriptor, 1 << 20).partition(b"\n")
    finally:
        os.close(descriptor)
    return name, owner
