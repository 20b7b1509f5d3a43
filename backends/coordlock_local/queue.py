"""Queues: which contenders stand in one, in which order, and which of them live."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from coordlock.errors import BackendError, BackendUnavailable
from coordlock.model.admission import blockers, mismatch
from coordlock.model.claim import Convertible, Permit
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.log import Log
from coordlock_local import values
from coordlock_local.counter import Counter
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy
from coordlock_local.session import is_alive
from coordlock_local.slots import EVICTED, Slot, Slots, queued, record

__all__ = ["LocalQueue", "queue_names", "sweep", "tidy"]

log = Log("coordlock.local")

#: How often a queue that changes is read again until two readings agree.
_MAX_READINGS: Final = 20
#: How often a sweep asks for the counter that another process holds, and seconds between.
_ATTEMPTS, _ATTEMPT_PAUSE_S = 20, 0.0005


class LocalQueue:
    """The queue ``name`` in a directory."""

    def __init__(self, directory: Directory, name: str) -> None:
        self.name: Final = name
        self.path: Final = directory.queue(name)
        self._directory = directory

    def add(
        self,
        entry: Entry,
        session: str,
        take: Callable[[], int],
        own: MutableMapping[str, Slot],
    ) -> Snapshot:
        """Add a contender with the token that ``take`` returns, and read the queue.

        The caller holds the counter, and the lock of the session's slots. ``own`` gets the slot, by
        the entry's id, before the contender is written: one that stands in the queue is known.
        """
        flags = os.O_RDWR | os.O_CREAT
        with Slots(self._directory, self.path, flags) as slots:
            index = slots.read()
            if not slots.ready:
                if _is_used(self._directory, slots):
                    raise BackendError(
                        SERVICE,
                        f"the queue {self.name!r} in {self._directory.root} is in use by a process "
                        "that sees another /proc/sys/kernel/random/boot_id, such as in a container "
                        "or a unit with ProcSubset=pid: give both the same view, or use etcd or "
                        "ZooKeeper",
                    )
                slots.begin(self.name)
            token = take()
            line = record(token, entry, session)
            slot = Slot(self.path, index.index(0) if 0 in index else len(index), token)
            own[entry.id] = slot
            if entry.value:
                values.write(self._directory, session, entry.id, entry.value)
            slots.add(slot.number, token, line)
            owner, value = entry.owner, entry.value
            me = Contender(entry.id, slot.key, entry.claim, token, token, session, owner, value, 1)
            ahead, omitted = self._nearest(slots, index, queued(index), entry.claim.window)
        return Snapshot(self.name, (*ahead, me), omitted=omitted)

    def snapshot(
        self,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Snapshot:
        """The queue, or its nearest part up to ``upto``, without the dead contenders.

        With ``conflicting``, all before ``upto`` that conflict with it.

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
            if conflicting and upto is not None:
                return self._conflicting(slots, slots.read(), upto)
            found = self._read(slots, upto, owners)
            for _ in range(_MAX_READINGS if owners else 0):
                before, found = found, self._read(slots, upto, owners)
                if before == found and _versions(before) == _versions(found):
                    return found
        if owners:
            reason = f"the queue {self.name!r} changes too fast to be read"
            raise BackendUnavailable(SERVICE, reason)
        return found

    def contender(self, slot: Slot) -> Contender | None:
        """The contender of ``slot``, if it stands there."""
        with suppress(FileNotFoundError), Slots(self._directory, self.path) as slots:
            if slots.get(slot.number) == slot.token:
                return slots.contender(slot.number, slot.token)
        return None

    def _read(self, slots: Slots, upto: Contender | None, owners: bool) -> Snapshot:
        index = slots.read()
        standing = queued(index, EVICTED if upto is None else upto.order + 1)
        wanted = len(standing) if upto is None else upto.claim.window + 1
        chosen, omitted = self._nearest(slots, index, standing, wanted, owners)
        return Snapshot(self.name, tuple(chosen), omitted=omitted)

    def _conflicting(self, slots: Slots, index: list[int], me: Contender) -> Snapshot:
        standing = queued(index, me.order + 1)
        chosen, _ = self._nearest(slots, index, standing, len(standing))
        if not isinstance(me.claim, Permit):  # else each takes one, or is another kind of lock
            pairs = [(one, Snapshot(self.name, (one, me))) for one in chosen]
            chosen = [
                one
                for one, pair in pairs
                if one.id == me.id or blockers(pair, me) or mismatch(pair, me) is not None
            ]
        return Snapshot(self.name, tuple(chosen))

    def _nearest(
        self,
        slots: Slots,
        index: list[int],
        standing: list[int],
        wanted: int,
        owners: bool = False,
    ) -> tuple[list[Contender], int]:
        """The last ``wanted`` that live, and how many stand before them."""
        lives: dict[str, bool] = {}
        chosen: list[Contender] = []
        left = len(standing)
        numbers = {token: number for number, token in enumerate(index)} if left else {}
        while left and len(chosen) < wanted:
            left -= 1
            token = standing[left]
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
        return chosen, left


def _versions(snapshot: Snapshot) -> list[int]:
    return [contender.version for contender in snapshot.contenders]


def _is_used(directory: Directory, slots: Slots) -> bool:
    """Whether processes that live use the file, which seems to be of an earlier run.

    They see another boot id then, and this process must leave the file alone.
    """
    return any(is_alive(directory, contender.session) for contender in slots.former())


def queue_names(directory: Directory) -> list[str]:
    """The names of the queues that may have contenders."""
    found = []
    for path in _paths(directory.queues):
        with suppress(OSError, BackendError), Slots(directory, path) as slots:
            if queued(slots.read()) and slots.name is not None:
                found.append(slots.name)
    return found


# The counter is held.


def tidy(directory: Directory, path: str, dead: Collection[str] = ()) -> None:
    """Remove what ``dead`` sessions left in the file ``path``, and the file if it is empty."""
    is_used = False
    with Slots(directory, path, os.O_RDWR) as slots:
        index = slots.read()
        if not slots.ready and _is_used(directory, slots):
            return
        for number, token in enumerate(index):
            # Evicted contenders too: their slots wait for their owners.
            found = slots.contender(number, token & ~EVICTED) if token else None
            if found is not None and found.session in dead:
                slots.put(number, 0)
            elif found is not None and token < EVICTED:
                is_used = is_used or is_alive(directory, found.session)
        if not is_used:
            os.unlink(path)  # the owner of an evicted one finds nothing, or another file


def sweep(directory: Directory, counter: Counter, dead: Sequence[str]) -> None:
    """Remove ``dead`` sessions, and all that they left.

    A session's file goes after its contenders, so that the next sweep ends what an error has ended.
    Raises OSError or `Busy` where it can't finish.
    """
    if not dead:
        return
    # Each alone, because there may be thousands, and other processes wait for the counter.
    for path in _paths(directory.queues):
        with suppress(BackendError, FileNotFoundError):  # no file of ours, or it has gone
            _hold(counter, partial(tidy, directory, path, dead))
    _hold(counter, partial(_clear, directory, dead))
    log.debug("removed %d dead session(s) from %s", len(dead), directory.root)


def _hold(counter: Counter, action: Callable[[], None]) -> None:
    for _ in range(_ATTEMPTS):
        with suppress(Busy):
            return counter.hold(lambda _: action())
        time.sleep(_ATTEMPT_PAUSE_S)
    raise Busy


def _clear(directory: Directory, dead: Sequence[str]) -> None:
    subscribed = [*_paths(directory.observed), *_paths(directory.changes)]
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
