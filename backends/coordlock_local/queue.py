"""Queues: who stands in one, in which order, and who of them lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from coordlock.errors import BackendError
from coordlock.model.admission import is_blocked
from coordlock.model.claim import Convertible
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.lazily import Lazily
from coordlock_local.counter import Counter, Tokens
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy
from coordlock_local.session import LocalSession, has_died, is_alive
from coordlock_local.slots import EVICTED, Place, Slots, header

if TYPE_CHECKING:
    from coordlock_local import values
else:
    values = Lazily("coordlock_local.values")  # few contenders publish anything

__all__ = ["Queue", "evict", "queue_names", "sweep", "tidy"]

#: How often a queue that changes is read again until two readings agree.
_READINGS: Final = 20
#: How often the counter is tried for work that can also be done later, and the pause in seconds.
_ATTEMPTS, _PAUSE = 20, 0.0005


class Queue:
    """The queue ``name`` in a directory."""

    def __init__(self, directory: Directory, name: str) -> None:
        self.name: Final = name
        self.path: Final = directory.queue(name)
        self._directory = directory
        self._header = header(directory, name)
        #: What the last reading of all has found, by their keys: a record stays as it is.
        self._seen: Mapping[str, Contender] = {}

    def add(
        self,
        entry: Entry,
        take: Callable[[], int],
        session: LocalSession,
        note: Callable[[str, Place], None],
        own: Mapping[str, Contender],
        unless_blocked: bool,
    ) -> Snapshot:
        """Add a contender with the token to ``take``, and read the queue.

        The counter must be held: see `add`.
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
            if not slots.ready or (slots.can_shrink and not index):
                slots.begin()
            earlier = _standing(index)
            if unless_blocked and earlier:
                present = self._select(slots, index, None, False, own)
                if is_blocked(present, entry):
                    return present
            token = take()
            slot = index.index(0) if 0 in index else len(index)
            place = Place(self.path, slot, token)
            note(entry.id, place)
            if entry.value:
                values.write(self._directory, session.id, entry.id, entry.value)
            slots.add(slot, token, entry, session.id)
            owner, value = entry.owner, entry.value
            me = Contender(
                entry.id, place.key, entry.claim, token, token, session.id, owner, value, 1
            )
            if not earlier:
                return Snapshot(self.name, (me,))
            chosen, omitted, dead = self._nearest(slots, earlier, entry.claim.window, own)
            for grave, contender in dead:
                _bury(self._directory, slots, grave, contender.session)
        return Snapshot(self.name, (*chosen, me), omitted=omitted)

    def snapshot(
        self,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        own: Mapping[str, Contender] | None = None,
    ) -> Snapshot:
        """The queue, or its nearest part up to ``upto``, without the dead ones.

        ``own`` holds contenders of this process by their keys, which need not be read and live.

        The index is not read in one step. But contenders before ``upto`` only leave, so one that is
        in the queue all the time is listed. With ``owners`` it is read until two readings agree.
        Tokens never come back, so the queue was like that at a moment between the two (Afek et
        al., "Atomic snapshots of shared memory", 1993).
        """
        try:
            slots = Slots(self._directory, self.path, header=self._header)
        except FileNotFoundError:
            return Snapshot(self.name, ())
        with slots:
            index = slots.read()
            snapshot = self._select(slots, index, upto, owners, own or {})
            for _ in range(_READINGS if owners else 0):
                before, index = index, slots.read()
                if index == before:
                    break
                snapshot = self._select(slots, index, upto, owners, own or {})
        return snapshot

    def contender(self, place: Place) -> Contender | None:
        """The contender at ``place``, if it stands there."""
        with (
            suppress(FileNotFoundError),
            Slots(self._directory, self.path, header=self._header) as slots,
        ):
            return slots.contender(place.slot, place.token)
        return None

    def _select(
        self,
        slots: Slots,
        index: list[int],
        upto: Contender | None,
        owners: bool,
        own: Mapping[str, Contender],
    ) -> Snapshot:
        if upto is None:
            standing = _standing(index)
            wanted = len(standing)
            last: tuple[Contender, ...] = ()
        else:
            assert upto.token is not None
            standing = _standing(index, upto.token)
            wanted = upto.claim.window
            last = (upto,) if upto.token in index else ()
            if owners and last:
                standing, wanted, last = _standing(index, upto.token + 1), wanted + 1, ()
        known = {} if owners else own
        chosen, omitted, _ = self._nearest(slots, standing, wanted, known, owners=owners)
        if upto is None and not owners:
            self._seen = {one.key: one for one in chosen}
        if owners:
            chosen = [values.described(self._directory, one) for one in chosen]
        return Snapshot(self.name, (*chosen, *last), omitted=omitted)

    def _nearest(
        self,
        slots: Slots,
        standing: list[tuple[int, int]],
        wanted: int,
        own: Mapping[str, Contender],
        *,
        owners: bool = False,
    ) -> tuple[list[Contender], int, list[tuple[Place, Contender]]]:
        """The last ``wanted`` that live, how many stand before them, and the dead between."""
        lives: dict[str, bool] = {}
        chosen: list[Contender] = []
        dead: list[tuple[Place, Contender]] = []
        end = len(standing)
        while end and len(chosen) < wanted:
            end -= 1
            token, slot = standing[end]
            place = Place(self.path, slot, token)
            contender = own.get(place.key)
            if contender is None:
                contender = None if owners else self._seen.get(place.key)
                contender = contender or slots.contender(slot, token, owners=owners)
                if contender is None:  # it has left meanwhile
                    continue
                if contender.session not in lives:
                    lives[contender.session] = is_alive(self._directory, contender.session)
                if not lives[contender.session]:
                    dead.append((place, contender))
                    continue
            if isinstance(contender.claim, Convertible):
                contender = values.described(self._directory, contender)
            chosen.append(contender)
        chosen.reverse()
        return chosen, end, dead


def add(
    places: Sequence[tuple[Queue, Entry]],
    session: LocalSession,
    note: Callable[[str, Place], None],
    own: Mapping[str, Contender],
    unless_blocked: bool = False,
) -> tuple[Snapshot, ...] | None:
    """Add an entry's contender to each queue, and read the queues; None if the session has died.

    They share a token. No other contender is added meanwhile, so of two sets one stands before the
    other in all queues. ``note`` is told where each entry's contender will stand before it stands
    there, so that it is never forgotten. Raises `Busy`. See `Queue.snapshot` for ``own``.
    With ``unless_blocked``, nothing is added where an entry is blocked: see `Backend.enqueue`.
    """

    def add_all(tokens: Tokens) -> tuple[Snapshot, ...]:
        at_once = unless_blocked and len(places) == 1
        if unless_blocked and not at_once:  # before the first is added
            present = tuple([queue.snapshot(own=own) for queue, _ in places])
            if any(map(is_blocked, present, (entry for _, entry in places))):
                return present
        token = 0

        def take() -> int:
            nonlocal token
            token = token or tokens.take()
            return token

        return tuple(
            [queue.add(entry, take, session, note, own, at_once) for queue, entry in places]
        )

    snapshots = session.counter.hold(add_all)
    return snapshots if session.is_alive() else None


def _standing(index: list[int], below: int = EVICTED) -> list[tuple[int, int]]:
    """The tokens in ``index`` that are smaller than ``below``, each with its slot, in order."""
    return sorted((token, slot) for slot, token in enumerate(index) if 0 < token < below)


def _is_used(directory: Directory, slots: Slots) -> bool:
    """Whether processes that live use the file, which seems to be of an earlier run.

    They see another boot id then, and this process must leave the file alone.
    """
    return any(is_alive(directory, contender.session) for contender in slots.former())


def _bury(directory: Directory, slots: Slots, place: Place, session: str) -> None:
    """Take the contender of a dead session away. The counter must be held."""
    # If the file of the session was removed, its process may live: then the slot stays its own.
    free = has_died(directory, session)
    if free:
        slots.put(place.slot, 0)
    else:
        slots.mark(place.slot, place.token)


def evict(directory: Directory, counter: Counter, contender: Contender) -> bool:
    """Remove a contender, whoever's it is; whether it was there. Raises `Busy`."""
    place = Place.of(contender)

    def mark(_: Tokens) -> bool:
        with Slots(directory, place.path, os.O_RDWR) as slots:
            is_there = slots.get(place.slot) == place.token
            if not is_there:
                return False
            # All that watch it hear of this file. It is opened first, so that they also hear of it
            # when this process is killed in between: then the system closes it.
            notice = -1
            with suppress(OSError):  # they look now and then anyway
                notice = directory.open(directory.session(contender.session), os.O_WRONLY)
            try:
                slots.mark(place.slot, place.token)
            finally:
                if notice >= 0:
                    os.close(notice)
            return True

    try:
        return counter.hold(mark)
    except FileNotFoundError:
        return False


def queue_names(directory: Directory) -> list[str]:
    """The names of the queues that may have contenders."""
    found = []
    for path in _files(directory):
        with suppress(OSError, BackendError), Slots(directory, path) as slots:
            if _standing(slots.read()) and slots.name is not None:
                found.append(slots.name)
    return found


def tidy(
    directory: Directory, counter: Counter, path: str, dead: Collection[str] = frozenset()
) -> None:
    """Remove what sessions that have died left in the file ``path``, and the file if it is empty.

    Raises `Busy`.
    """

    def remove(_: Tokens) -> None:
        left = 0
        with Slots(directory, path, os.O_RDWR) as slots:
            index = slots.read()
            if not slots.ready and _is_used(directory, slots):
                return
            for slot, token in enumerate(index):
                # Of those that were evicted too, whose slots wait for them.
                contender = slots.contender(slot, token & ~EVICTED) if dead and token else None
                if contender is not None and contender.session in dead:
                    slots.put(slot, 0)
                elif 0 < token < EVICTED:
                    left += 1
            if not left:
                os.unlink(path)  # who was evicted from it finds nothing, or another file

    counter.hold(remove)


def sweep(directory: Directory, counter: Counter, sessions: Iterable[str]) -> list[str]:
    """Remove what dead ones among ``sessions`` left, and them; the ids of the dead.

    A session's file goes last, so that the next `open` sweeps again what was not finished.
    Raises OSError or `Busy` where it can't finish.
    """
    dead = [id for id in sessions if not is_alive(directory, id)]
    for path in _files(directory) if dead else ():
        for attempt in range(_ATTEMPTS):
            try:
                with suppress(OSError, BackendError):  # gone meanwhile; no file of ours
                    tidy(directory, counter, path, dead)
                break
            except Busy:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(_PAUSE)
    for id in dead:
        with suppress(FileNotFoundError):
            os.unlink(directory.session(id))
    for name in os.listdir(directory.changes) if dead else ():
        with suppress(FileNotFoundError):  # those that live and follow it make it again
            os.unlink(os.path.join(directory.changes, name))
    left = [
        (place, name)
        for place in (directory.watched, directory.values)
        for name in os.listdir(place)
    ]
    living = set(os.listdir(directory.sessions)) if left else ()
    for place, name in left:
        if name.partition("-")[0] not in living:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(place, name))
    return dead


def _files(directory: Directory) -> list[str]:
    return [os.path.join(directory.queues, name) for name in os.listdir(directory.queues)]
