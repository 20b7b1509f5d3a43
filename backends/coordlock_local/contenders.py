"""The contenders of one session: where they stand, what they publish, and what they watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from coordlock.backend import Departure
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.admission import is_blocked
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock_local import values
from coordlock_local.counter import Tokens, patiently
from coordlock_local.errors import SERVICE, Busy, translated
from coordlock_local.leaving import leave, tell_observers
from coordlock_local.queue import LocalQueue, tidy
from coordlock_local.session import LocalSession
from coordlock_local.slots import Slot, stands
from coordlock_local.watcher import Watcher

__all__ = ["Contenders"]

#: So many queues' files may be left for the next time, when they are empty.
_MAX_IDLE_QUEUES: Final = 256


class Contenders:
    """The contenders of ``session``, which is alive at first."""

    def __init__(self, session: LocalSession, died: Callable[[], object] = lambda: None) -> None:
        """``died`` is called when other processes are found to take ``session`` for dead."""
        self.session: Final = session
        self.watcher: Final = Watcher(session, died=died)
        self._directory = session.directory
        self._queues: dict[str, LocalQueue] = {}  # by name; the longest in use comes first
        self._slots: dict[str, Slot] = {}  # by entry id
        self._own: dict[str, Contender] = {}  # by key

    def queue(self, name: str) -> LocalQueue:
        """The queue ``name``: the one that this session uses, or another look at its file."""
        found = self._queues.get(name)
        return found or LocalQueue(self._directory, name, self.session, self._own)

    def add(self, entries: Sequence[Entry], unless_blocked: bool) -> tuple[Snapshot, ...]:
        """See `Backend.enqueue`. Raises `Busy`."""
        wanted = [(self._queue_in_use(entry.queue), entry) for entry in entries]
        slots = [self._slots[entry.id] for entry in entries if entry.id in self._slots]
        if slots:
            if len(slots) == len(wanted) and all(stands(self._directory, one) for one in slots):
                pairs = zip(wanted, slots, strict=True)
                return tuple([queue.snapshot(queue.contender(at)) for (queue, _), at in pairs])
            for entry in entries:  # a part has gone, so the rest stands in the wrong order
                self.remove(entry.id)
        adding = partial(self._add, wanted, unless_blocked)
        hold = partial(self.session.counter.hold, adding)
        snapshots = patiently(self.session.slots_lock_in_time, hold)
        for (queue, entry), snapshot in zip(wanted, snapshots, strict=True):
            if (me := snapshot.find(entry.id)) is not None:
                self._own[me.key] = me
                tell_observers(self._directory, queue.path)
        return snapshots

    def _add(
        self, wanted: Sequence[tuple[LocalQueue, Entry]], unless_blocked: bool, tokens: Tokens
    ) -> tuple[Snapshot, ...]:
        """Add an entry's contender to each queue, with one token, and read the queues.

        The counter is held, so no other contender is added meanwhile: of two sets, one stands
        before the other in all queues.
        """
        at_once = unless_blocked and len(wanted) == 1
        if unless_blocked and not at_once:  # before the first is added
            present = tuple([queue.snapshot() for queue, _ in wanted])
            if any(map(is_blocked, present, (entry for _, entry in wanted))):
                return present
        token = 0

        def take() -> int:
            nonlocal token
            token = token or tokens.take()
            return token

        return tuple(
            [queue.add(entry, self.session, take, self._slots, at_once) for queue, entry in wanted]
        )

    def remove(self, id: str) -> bool:
        """Remove the contender of the entry ``id``; whether it was there."""
        slot = self._slots.get(id)
        if slot is None:
            return False
        session = self.session
        try:
            was_there = False
            with session.slots_lock:
                if not session.has_ended:
                    was_there = leave(self._directory, slot, self._contender(id, slot), self._slots)
        except OSError as error:
            # As long as the session lives, so does the contender: this must be tried again.
            raise BackendUnavailable(SERVICE, translated(error).reason) from error
        # The slot is forgotten last: what Ctrl-C ends here is done again by the next removal.
        key = slot.key
        self.watcher.own_left(key)
        self._own.pop(key, None)
        values.remove(self._directory, session.id, id)
        self._slots.pop(id, None)
        return was_there

    def _contender(self, id: str, slot: Slot) -> Contender:
        """That of ``slot``; where Ctrl-C came before it was noted, as one that excludes most."""
        unknown = Contender(id, slot.key, Mode.EX, slot.token, slot.token, self.session.id)
        return self._own.get(slot.key, unknown)

    def publish(self, contender: Contender, value: bytes, version: int) -> None:
        """See `Backend.publish`."""
        values.publish(self.session, contender, value, version)
        self.watcher.own_changed(contender.key)

    def watch(
        self,
        contender: Contender,
        on_departure: Callable[[Departure], None],
        waiters: Sequence[Contender],
        changes: bool,
    ) -> Callable[[], None]:
        """See `Backend.watch`."""
        try:
            return self.watcher.watch(contender, on_departure, waiters, changes)
        except RuntimeError as error:  # no thread: the interpreter is exiting, or has too many
            raise BackendUnavailable(SERVICE, str(error)) from error

    def end(self) -> None:
        """Remove all contenders, and end the session."""
        self.watcher.close()
        used = {queue.path for queue in self._queues.values()}
        used |= {slot.path for slot in self._slots.values()}
        for id in list(self._slots):
            with suppress(OSError):  # it is dead with its session
                self.remove(id)
        self.session.end()
        for path in used:
            self._tidy(path)

    def _queue_in_use(self, name: str) -> LocalQueue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = self.queue(name)
            if len(self._queues) > _MAX_IDLE_QUEUES:
                with suppress(KeyError, StopIteration, RuntimeError):  # another thread does it
                    self._tidy(self._queues.pop(next(iter(self._queues))).path)
        return queue

    def _tidy(self, path: str) -> None:
        """Remove a queue's file if it is empty; where that's impossible, another client does it."""
        with suppress(OSError, CoordlockError, Busy):
            tidy(self._directory, self.session.counter, path)
