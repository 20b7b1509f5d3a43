"""Queues: which contenders stand in one, in which order, and which of them live."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, MutableMapping, Sequence
from contextlib import suppress
from typing import Final

from coordlock.errors import BackendError, BackendUnavailable, Evicted
from coordlock.model.claim import Convertible
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.log import Log
from coordlock_local import values
from coordlock_local.counter import Counter
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE
from coordlock_local.session import is_alive
from coordlock_local.slots import EVICTED, Slot, Slots, queued, record, stands

__all__ = ["LocalQueue", "queue_names", "sweep", "tidy", "verify"]

log = Log("coordlock.local")

#: How often a queue that changes is read again until two readings agree.
_MAX_READINGS: Final = 20


class LocalQueue:
    """The queue ``name`` in a directory."""

    def __init__(self, directory: Directory, name: str) -> None:
        self.name: Final = name
        self.path: Final = directory.queue(name)
        self._directory = directory

    def add(
        self, entry: Entry, session: str, token: int, own: MutableMapping[str, Contender]
    ) -> Snapshot:
        """Add a contender, and read the queue.

        The caller holds the counter. ``own`` gets the contender, by the entry's id, before it is
        written: one that stands in the queue is known.
        """
        line = record(token, entry, session)
        with Slots(self._directory, self.path, os.O_CREAT) as slots:
            _, index = slots.contents()
            if not index:
                slots.begin(self.name)
            slot = Slot(self.path, index.index(0) if 0 in index else len(index), token)
            owner, value = entry.owner, entry.value
            me = Contender(entry.id, slot.key, entry.claim, token, token, session, owner, value, 1)
            own[entry.id] = me
            if value:
                values.write(self._directory, session, entry.id, value)
            slots.add(slot.number, token, line)
            ahead, omitted = self._nearest(slots, index, queued(index), entry.claim.window)
        return Snapshot(self.name, (*ahead, me), omitted=omitted)

    def snapshot(self, upto: Contender | None = None, *, owners: bool = False) -> Snapshot:
        """The queue, or its nearest part up to ``upto``, without the dead contenders.

        The index is not read in one step. But contenders before ``upto`` only leave, so each that
        is in the queue all the time is listed. With ``owners`` it is read until two readings agree.
        Neither tokens nor the versions of values come back, so the queue was like that at a moment
        between the two (Afek et al., "Atomic snapshots of shared memory", 1993). Raises
        `BackendUnavailable` where it changes too fast for that.
        """
        try:
            slots = Slots(self._directory, self.path)
        except FileNotFoundError:
            return Snapshot(self.name, ())
        with slots:
            found = self._read(slots, upto, owners)
            if not owners:
                return found
            for _ in range(_MAX_READINGS):
                before, found = found, self._read(slots, upto, owners)
                if before == found and _versions(before) == _versions(found):
                    return found
        raise BackendUnavailable(SERVICE, f"the queue {self.name!r} changes too fast to be read")

    def _read(self, slots: Slots, upto: Contender | None, owners: bool) -> Snapshot:
        _, index = slots.contents()
        standing = queued(index, EVICTED if upto is None else upto.order + 1)
        wanted = len(standing) if upto is None else upto.claim.window + 1
        chosen, omitted = self._nearest(slots, index, standing, wanted, owners)
        return Snapshot(self.name, tuple(chosen), omitted=omitted)

    def _nearest(
        self,
        slots: Slots,
        index: list[int],
        standing: list[int],
        wanted: int,
        owners: bool = False,
    ) -> tuple[list[Contender], int]:
        """The last ``wanted`` of ``standing`` that live, and how many stand before them."""
        lives: dict[str, bool] = {}
        chosen: list[Contender] = []
        numbers = {token: number for number, token in enumerate(index)} if standing else {}
        while standing and len(chosen) < wanted:
            token = standing.pop()
            contender = slots.contender(numbers[token], token, owners=owners)
            if contender is None:  # it has left meanwhile
                continue
            session = contender.session
            if session not in lives:
                lives[session] = is_alive(self._directory, session)
            if lives[session]:
                if owners or isinstance(contender.claim, Convertible):
                    contender = values.described(self._directory, contender)
                chosen.append(contender)
        chosen.reverse()
        return chosen, len(standing)


def _versions(snapshot: Snapshot) -> list[int]:
    return [contender.version for contender in snapshot.contenders]


def verify(directory: Directory, guards: Iterable[Contender]) -> None:
    """Raise `Evicted` unless all ``guards`` stand in their queues and their processes live."""
    for guard in guards:
        if not (stands(directory, Slot.of(guard)) and is_alive(directory, guard.session)):
            raise Evicted(guard.key)


def queue_names(directory: Directory) -> list[str]:
    """The names of the queues that may have contenders."""
    found = []
    for path in _paths(directory.queues):
        with suppress(OSError, BackendError), Slots(directory, path) as slots:
            name, index = slots.contents()
            if queued(index) and name is not None:
                found.append(name)
    return found


# The counter is held.


def tidy(directory: Directory, path: str, dead: Collection[str] = ()) -> None:
    """Remove what ``dead`` sessions left in the file ``path``, and the file if it is empty."""
    is_used = False
    with Slots(directory, path) as slots:
        _, index = slots.contents()
        for number, token in enumerate(index):
            # Evicted contenders too: their slots wait for their owners.
            found = slots.contender(number, token & ~EVICTED) if token else None
            if found is not None and found.session in dead:
                slots.put(number, 0)
            elif found is not None and token < EVICTED:
                is_used = is_used or is_alive(directory, found.session)
        if not is_used:
            os.unlink(path)  # the owner of an evicted one finds nothing, or another file


def sweep(directory: Directory, dead: Sequence[str]) -> None:
    """Remove ``dead`` sessions, and all that they left.

    A session's file goes after its contenders, so that the next sweep ends what an error has ended.
    Raises OSError or `Busy` where it can't finish.
    """
    if not dead:
        return
    counter = Counter(directory)
    # Each alone, because there may be thousands, and other processes wait for the counter.
    for path in _paths(directory.queues):
        with suppress(BackendError, FileNotFoundError):  # no file of ours, or it has gone
            counter.hold(lambda _: tidy(directory, path, dead))  # noqa: B023 - called at once
    counter.hold(lambda _: _clear(directory, dead))
    log.debug("removed %d dead session(s) from %s", len(dead), directory.root)


def _clear(directory: Directory, dead: Sequence[str]) -> None:
    subscribed = _paths(directory.observed)
    for folder in (directory.pipes, directory.values, *subscribed):
        _remove(path for path in _paths(folder) if os.path.basename(path).startswith(tuple(dead)))
    for folder in subscribed:
        with suppress(OSError):  # others have subscribed
            os.rmdir(folder)
    _remove(map(directory.session, dead))


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _paths(folder: str) -> list[str]:
    with suppress(FileNotFoundError):
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    return []
