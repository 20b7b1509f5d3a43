"""The contenders of one session: where they stand, what they publish, and what they watch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.admission import is_blocked
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock_local import values
from coordlock_local.errors import SERVICE, Busy, translated
from coordlock_local.leaving import leave
from coordlock_local.pipes import publish
from coordlock_local.queue import LocalQueue, tidy
from coordlock_local.session import LocalSession
from coordlock_local.slots import Slot, stands
from coordlock_local.watcher import Watcher

__all__ = ["Contenders"]

#: So many queues' files may be left for the next time, when they are empty.
_MAX_IDLE_QUEUES: Final = 256


class Contenders:
    """The contenders of ``session``, which is alive at first."""

    def __init__(self, session: LocalSession, on_look: Callable[[], object] = lambda: None) -> None:
        """``on_look`` is called before each look of the `watcher`."""
        self.session: Final = session
        self.watcher: Final = Watcher(session, on_look)
        self._directory = session.directory
        self._queues: dict[str, LocalQueue] = {}  # by name; the longest in use comes first
        self._own: dict[str, Contender] = {}  # by entry id

    def add(self, entries: Sequence[Entry], unless_blocked: bool) -> tuple[Snapshot, ...]:
        """See `Backend.enqueue`. Raises `Busy`."""
        wanted, own = list[tuple[LocalQueue, Entry]](), list[Contender]()
        for entry in entries:
            wanted.append((self._queue_in_use(entry.queue), entry))
            if entry.id in self._own:
                own.append(self._own[entry.id])
        if own:
            standing = [me for me in own if stands(self._directory, Slot.of(me))]
            if len(standing) == len(entries):
                places = zip(wanted, standing, strict=True)
                return tuple([queue.snapshot(me) for (queue, _), me in places])
            for me in own:  # a part has gone, so the rest stands in the wrong order
                self.remove(me.id)
        snapshots = self.session.counter.hold(partial(self._add, wanted, unless_blocked))
        for (queue, entry), snapshot in zip(wanted, snapshots, strict=True):
            if snapshot.find(entry.id) is not None:
                publish(self._directory, os.path.basename(queue.path))
        return snapshots

    def _add(
        self, wanted: Sequence[tuple[LocalQueue, Entry]], unless_blocked: bool, counter: int
    ) -> tuple[Snapshot, ...]:
        """Add an entry's contender to each queue, with one token, and read the queues.

        The counter is held, so no other contender is added meanwhile: of two sets, one stands
        before the other in all queues.
        """
        if unless_blocked:  # before the first is added
            present = tuple([queue.snapshot() for queue, _ in wanted])
            if any(map(is_blocked, present, (entry for _, entry in wanted))):
                return present
        token = self.session.counter.take(counter)
        id, own = self.session.id, self._own
        return tuple([queue.add(entry, id, token, own) for queue, entry in wanted])

    def remove(self, id: str) -> bool:
        """Remove the contender of the entry ``id``; whether it was there."""
        me = self._own.get(id)
        if me is None:
            return False
        session = self.session
        try:
            was_there = False
            with session.slots_lock:
                if not session.has_ended:
                    was_there = leave(self._directory, me, self._own)
        except OSError as error:
            # As long as the session lives, so does the contender: this must be tried again.
            reason = translated(error, self._directory.root).reason
            raise BackendUnavailable(SERVICE, reason) from error
        # It is forgotten last: what Ctrl-C ends here is done again by the next removal.
        self.watcher.own_left(me.key)
        values.remove(self._directory, session.id, id)
        self._own.pop(id, None)
        return was_there

    def end(self) -> None:
        """Remove all contenders, and end the session."""
        self.watcher.close()
        used = {queue.path for queue in self._queues.values()}
        used |= {Slot.of(me).path for me in self._own.values()}
        for id in list(self._own):
            with suppress(OSError):  # it is dead with its session
                self.remove(id)
        self.session.end()
        for path in used:
            self._tidy(path)

    def _queue_in_use(self, name: str) -> LocalQueue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = LocalQueue(self._directory, name)
            if len(self._queues) > _MAX_IDLE_QUEUES:
                with suppress(KeyError, StopIteration, RuntimeError):  # another thread does it
                    self._tidy(self._queues.pop(next(iter(self._queues))).path)
        return queue

    def _tidy(self, path: str) -> None:
        """Remove a queue's file if it is empty; where that's impossible, another client does it."""
        with suppress(OSError, CoordlockError, Busy):
            self.session.counter.hold(lambda _: tidy(self._directory, path))
