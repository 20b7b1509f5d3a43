"""Queues: which contenders stand in one, in which order, and which of them live."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from contextlib import suppress
from typing import Final

from coordlock.errors import BackendError
from coordlock.model.admission import blockers, is_blocked, mismatch
from coordlock.model.claim import Convertible, Permit
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock_local import values
from coordlock_local.counter import Counter, Tokens
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy
from coordlock_local.pipes import clear
from coordlock_local.session import LocalSession, has_died, is_alive
from coordlock_local.slots import EVICTED, Slot, Slots, header, queued, record

__all__ = ["LocalQueue", "queue_names", "sweep", "tidy"]

#: How often a queue that changes is read again until two readings agree.
_MAX_READINGS: Final = 20
#: How often the counter is tried for work that can also be done later, and the pause in seconds.
_MAX_ATTEMPTS, _ATTEMPT_PAUSE_S = 20, 0.0005


class LocalQueue:
    """The queue ``name`` in a directory.

    ``own`` are contenders of ``session`` by their keys: they live, and need not be read.
    """

    def __init__(
        self,
        directory: Directory,
        name: str,
        session: LocalSession | None = None,
        own: Mapping[str, Contender] | None = None,
    ) -> None:
        self.name: Final = name
        self.path: Final = directory.queue(name)
        self._directory = directory
        self._header = header(directory, name)
        self._session = session
        self._own: Mapping[str, Contender] = {} if own is None else own

    def add(
        self,
        entry: Entry,
        session: LocalSession,
        take: Callable[[], int],
        own: MutableMapping[str, Slot],
        unless_blocked: bool,
    ) -> Snapshot:
        """Add a contender with the token that ``take`` returns, and read the queue.

        The caller holds the counter, and the session's ``slots_lock``. ``own`` gets the slot, by
        the entry's id, before the contender is written: one that stands in the queue is known.
        """
        flags = os.O_RDWR | os.O_CREAT
        with Slots(self._directory, self.path, flags, self._header) as slots:
            index = slots.read()
            if not slots.ready and _is_used(self._directory, slots):
                raise BackendError(
                    SERVICE,
                    f"the queue {self.name!r} in {self._directory.root} is in use by a process "
                    "that sees another /proc/sys/kernel/random/boot_id, such as in a container "
                    "or a unit with ProcSubset=pid: give both the same view, or use etcd or "
                    "ZooKeeper",
                )
            if not slots.ready:
                slots.begin()
            earlier = queued(index)
            if unless_blocked and earlier:
                present = self._select(slots, index, None, False)
                if is_blocked(present, entry):
                    return present
            token = take()
            slot = Slot(self.path, index.index(0) if 0 in index else len(index), token)
            line = record(token, entry, session.id)
            own[entry.id] = slot
            if entry.value:
                values.write(self._directory, session.id, entry.id, entry.value)
            slots.add(slot.number, token, line)
            owner, value = entry.owner, entry.value
            me = Contender(
                entry.id, slot.key, entry.claim, token, token, session.id, owner, value, 1
            )
            if not earlier:
                return Snapshot(self.name, (me,))
            chosen, omitted, dead = self._nearest(slots, index, earlier, entry.claim.window)
            for dead_slot, contender in dead:
                _remove_dead(self._directory, slots, dead_slot, contender.session)
        return Snapshot(self.name, (*chosen, me), omitted=omitted)

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
        Tokens never come back, so the queue was like that at a moment between the two (Afek et
        al., "Atomic snapshots of shared memory", 1993).
        """
        try:
            slots = Slots(self._directory, self.path, header=self._header)
        except FileNotFoundError:
            return Snapshot(self.name, ())
        with slots:
            index = slots.read()
            if conflicting and upto is not None:
                assert upto.token is not None
                last = (upto,) if upto.token in index else ()
                return Snapshot(self.name, (*self._in_the_way(slots, index, upto), *last))
            snapshot = self._select(slots, index, upto, owners)
            for _ in range(_MAX_READINGS if owners else 0):
                before, index = index, slots.read()
                if index == before:
                    break
                snapshot = self._select(slots, index, upto, owners)
        return snapshot

    def contender(self, slot: Slot) -> Contender | None:
        """The contender of ``slot``, if it stands there."""
        with (
            suppress(FileNotFoundError),
            Slots(self._directory, self.path, header=self._header) as slots,
        ):
            return slots.contender(slot.number, slot.token)
        return None

    def _select(
        self, slots: Slots, index: list[int], upto: Contender | None, owners: bool
    ) -> Snapshot:
        if upto is None:
            earlier = queued(index)
            wanted = len(earlier)
            last: tuple[Contender, ...] = ()
        else:
            assert upto.token is not None
            earlier = queued(index, upto.token)
            wanted = upto.claim.window
            last = (upto,) if upto.token in index else ()
            if owners and last:
                earlier, wanted, last = queued(index, upto.token + 1), wanted + 1, ()
        chosen, omitted, _ = self._nearest(slots, index, earlier, wanted, owners=owners)
        return Snapshot(self.name, (*chosen, *last), omitted=omitted)

    def _in_the_way(self, slots: Slots, index: list[int], me: Contender) -> list[Contender]:
        """The contenders before ``me`` that conflict with it."""
        earlier = queued(index, me.order)
        chosen, _, _ = self._nearest(slots, index, earlier, len(earlier))
        if isinstance(me.claim, Permit):  # each takes one, or is another kind of lock
            return chosen
        pairs = [(one, Snapshot(self.name, (one, me))) for one in chosen]
        return [one for one, pair in pairs if blockers(pair, me) or mismatch(pair, me) is not None]

    def _nearest(
        self,
        slots: Slots,
        index: list[int],
        standing: list[int],
        wanted: int,
        *,
        owners: bool = False,
    ) -> tuple[list[Contender], int, list[tuple[Slot, Contender]]]:
        """The last ``wanted`` that live, how many stand before them, and the dead between."""
        lives: dict[str, bool] = {}
        chosen: list[Contender] = []
        dead: list[tuple[Slot, Contender]] = []
        end = len(standing)
        numbers = {token: number for number, token in enumerate(index)}
        while end and len(chosen) < wanted:
            end -= 1
            token = standing[end]
            slot = Slot(self.path, numbers[token], token)
            own = None if owners else self._own.get(slot.key)
            contender = own
            if contender is None or isinstance(contender.claim, Convertible):
                contender = slots.contender(slot.number, token, owners=owners)
                if contender is None:  # it has left meanwhile
                    continue
            if own is None:
                if contender.session not in lives:
                    lives[contender.session] = self._lives(contender.session)
                if not lives[contender.session]:
                    dead.append((slot, contender))
                    continue
            if owners or isinstance(contender.claim, Convertible):
                contender = values.described(self._directory, contender)
            chosen.append(contender)
        chosen.reverse()
        return chosen, end, dead

    def _lives(self, session: str) -> bool:
        if self._session is not None and self._session.id == session:
            return self._session.is_alive()
        return is_alive(self._directory, session)


def _is_used(directory: Directory, slots: Slots) -> bool:
    """Whether processes that live use the file, which seems to be of an earlier run.

    They see another boot id then, and this process must leave the file alone.
    """
    return any(is_alive(directory, contender.session) for contender in slots.former())


def _remove_dead(directory: Directory, slots: Slots, slot: Slot, session: str) -> None:
    """Remove the contender of a dead session. The counter must be held."""
    # If the file of the session was removed, its process may live: then the slot stays its own.
    if has_died(directory, session):
        slots.put(slot.number, 0)
    else:
        slots.mark(slot.number, slot.token)


def queue_names(directory: Directory) -> list[str]:
    """The names of the queues that may have contenders."""
    found = []
    for path in _paths(directory.queues):
        with suppress(OSError, BackendError), Slots(directory, path) as slots:
            if queued(slots.read()) and slots.name is not None:
                found.append(slots.name)
    return found


def tidy(
    directory: Directory, counter: Counter, path: str, dead: Collection[str] = frozenset()
) -> None:
    """Remove what ``dead`` sessions left in the file ``path``, and the file if it is empty.

    Raises `Busy`.
    """

    def remove(_: Tokens) -> None:
        left = 0
        with Slots(directory, path, os.O_RDWR) as slots:
            index = slots.read()
            if not slots.ready and _is_used(directory, slots):
                return
            for number, token in enumerate(index):
                # Evicted contenders too: their slots wait for their owners.
                found = slots.contender(number, token & ~EVICTED) if dead and token else None
                if found is not None and found.session in dead:
                    slots.put(number, 0)
                elif 0 < token < EVICTED:
                    left += 1
            if not left:
                os.unlink(path)  # the owner of an evicted one finds nothing, or another file

    counter.hold(remove)


def sweep(directory: Directory, counter: Counter, sessions: Iterable[str]) -> list[str]:
    """Remove the dead ones among ``sessions``, and what they left; the ids of the dead.

    A session's file goes after its contenders, so that the next `open` sweeps again what was not
    finished. Raises OSError or `Busy` where it can't finish.
    """
    dead = [id for id in sessions if not is_alive(directory, id)]
    for path in _paths(directory.queues) if dead else ():
        for attempt in range(_MAX_ATTEMPTS):
            try:
                with suppress(OSError, BackendError):  # gone meanwhile; no file of ours
                    tidy(directory, counter, path, dead)
                break
            except Busy:
                if attempt == _MAX_ATTEMPTS - 1:
                    raise
                time.sleep(_ATTEMPT_PAUSE_S)
    _remove(map(directory.session, dead))
    if dead:
        clear(directory)
    left = _paths(directory.values)
    living = set(os.listdir(directory.sessions)) if left else ()
    _remove(value for value in left if os.path.basename(value).partition("-")[0] not in living)
    return dead


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _paths(directory: str) -> list[str]:
    return [os.path.join(directory, name) for name in os.listdir(directory)]
