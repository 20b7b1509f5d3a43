"""What one client puts into a work queue: all that waits, in one write after the other.

Why no item is put twice, and none is lost without a word. A write expects the tail at the version
that was read, and changes it: so of all attempts at one version, by whichever client, one is made.
It notes in the tail which operation of which producer it is. After a lost answer the tail is read
again. If it names the operation, that was made, with the numbers noted there. If not, and fewer
than 64 changes have followed, it was not made: the attempts at older versions never will be, and
one at this version excludes the next. A producer ends one operation before it begins another.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Final

from coordlock.backend.data import Expect, Operation, Put
from coordlock.errors import BackendUnavailable, VersionMismatch, WorkQueueFull
from coordlock.runtime.clock import sleep, soon
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise
from coordlock.work.layout import ItemId, Serial, creating
from coordlock.work.records import Content, Record, State, Tail, marked
from coordlock.work.store import Store

__all__ = ["Parcel", "Producer"]

#: How many items one write puts, as how many one with a delay counts, and how many bytes: what all
#: services take in one request.
_ITEMS: Final = 100
_DELAYED: Final = 4
_BYTES: Final = 900_000
#: Seconds between two attempts: after a silence, and at most after others came first. That is
#: short, or those who are refused would be refused again by those who are not.
_PAUSE: Final = 0.1
_AFTER_OTHERS: Final = 0.006


class Parcel:
    """One item on its way: ``id`` is kept with its id when it was put."""

    __slots__ = ("data", "delay", "id", "limit", "unanswered")

    def __init__(self, data: bytes, delay: float, limit: int | None) -> None:
        """``limit`` is the depth up to which it may be put."""
        self.data: Final = data
        self.delay: Final = delay
        self.limit: Final = limit
        self.id: Final[Promise[ItemId]] = Promise()
        #: Why the latest attempt has no answer.
        self.unanswered: BackendUnavailable | None = None


class Producer:
    """Puts the items of one client into one queue."""

    def __init__(self, store: Store) -> None:
        self._store: Final = store
        self._engine: Final = store.engine
        self._layout: Final = store.layout
        self._name: Final = secrets.token_hex(6)
        self._lock: Final = threading.RLock()
        self._waiting: list[Parcel] = []
        self._is_writing = False
        self._operation = 0
        #: As last read, or written since; None where it has to be read.
        self._state: State | None = None

    def put(self, parcels: Sequence[Parcel]) -> Steps[list[str]]:
        """Put ``parcels`` in order, together with all that waits then; their ids."""
        ids: list[str] = []
        try:
            with self._lock:
                self._waiting += parcels
            for parcel in parcels:
                id = yield from self._put(parcel)
                ids.append(str(id))
        except BaseException as error:
            if len(parcels) > 1:
                error.add_note(f"the first {len(ids)} of {len(parcels)} items were put")
            raise
        finally:
            for parcel in parcels[len(ids) :]:
                self._recall(parcel)
        return ids

    def _put(self, parcel: Parcel) -> Steps[ItemId]:
        try:
            return (yield from self._engine.bounded(self._sent(parcel)))
        except BackendUnavailable as error:
            if self._recall(parcel):
                raise
            reason = f"{error.reason}; the item may have been put, or may be yet"
            raise BackendUnavailable(error.service, reason) from error.__cause__

    def _sent(self, parcel: Parcel) -> Steps[ItemId]:
        with self._lock:
            begins = not (self._is_writing or parcel.id.done())
        if begins:  # where Ctrl-C cannot strike, because others wait for it, too
            soon(self._engine.timers, self._begin)
            self._engine.check()  # after it was closed, nothing begins
        try:
            id: ItemId = yield parcel.id
        except DeadlineReached as late:
            raise late from parcel.unanswered
        return id

    def _recall(self, parcel: Parcel) -> bool:
        """Take ``parcel`` back; False where it was sent, or may have been."""
        with self._lock:
            if parcel in self._waiting:
                self._waiting.remove(parcel)
                return True
        return parcel.id.done() and parcel.id.exception() is not None

    def _begin(self) -> None:
        with self._lock:
            if self._is_writing:
                return
            self._is_writing = True
        run_in_background(self._writing())

    def _writing(self) -> Steps[None]:
        """Write what waits, until nothing does."""
        while batch := self._batch():
            try:
                yield from self._write(batch)
            except Exception as error:
                self._state = None
                for parcel in batch:
                    parcel.id.fail(copy(error))

    def _batch(self) -> list[Parcel]:
        """What goes into the next write, off the list of what waits."""
        with self._lock:
            size = number = weight = 0
            for parcel in self._waiting:
                size += len(parcel.data)
                weight += _DELAYED if parcel.delay else 1
                if number and (size > _BYTES or weight > _ITEMS):
                    break
                number += 1
            batch, self._waiting = self._waiting[:number], self._waiting[number:]
            self._is_writing = bool(batch)
            return batch

    def _write(self, batch: list[Parcel]) -> Steps[None]:
        """Put ``batch``, or fail its promises."""
        self._operation += 1
        state, self._state = self._state, None
        is_fresh, begun = False, 0
        last: BackendUnavailable | None = None
        while True:
            # What is known may be old: items were claimed since.
            if state is None or not (is_fresh or _admitted(batch, state) == batch):
                state, is_fresh = (yield from self._look(batch)), True
            if last is None:
                batch, begun = self._refuse_beyond(batch, state), state.tail_version
            elif self._was_made(batch, state, begun, last):
                batch = []
            if not batch:
                self._state = state
                return
            tail, operations = self._operations(batch, state)
            try:
                yield self._store.backend.write(operations)
            except VersionMismatch:
                yield sleep(self._engine.timers, self._engine.timers.jitter(_AFTER_OTHERS))
                state = None
            except BackendUnavailable as error:
                last = error
                for parcel in batch:
                    parcel.unanswered = error
                yield sleep(self._engine.timers, _PAUSE)
                state = None
            else:
                self._resolve(batch, state.tail.next, state.tail.delayed)
                self._state = replace(state, tail=tail, tail_version=state.tail_version + 1)
                return

    def _look(self, batch: Sequence[Parcel]) -> Steps[State]:
        """The state; without the lanes, as if all items waited, where no limit counts."""
        is_limited = any(parcel.limit is not None for parcel in batch)
        return (yield from self._store.state(lanes=is_limited))

    def _refuse_beyond(self, batch: Sequence[Parcel], state: State) -> list[Parcel]:
        """What of ``batch`` there is room for; the rest is refused."""
        admitted = _admitted(batch, state)
        for parcel in batch:
            if parcel not in admitted:
                assert parcel.limit is not None
                parcel.id.fail(WorkQueueFull(self._layout.name, parcel.limit))
        return admitted

    def _operations(self, batch: Sequence[Parcel], state: State) -> tuple[Tail, list[Operation]]:
        """The next tail, and all that is written with it."""
        tail, layout, now = state.tail, self._layout, time.time()
        delayed = sum(1 for parcel in batch if parcel.delay > 0)
        after = tail.after(self._name, self._operation, len(batch) - delayed, delayed)
        operations: list[Operation] = [Expect(layout.tail, state.tail_version)]
        operations.append(Put(layout.tail, after.encode()))
        for parcel, id in zip(batch, _ids(batch, tail.next, tail.delayed), strict=True):
            operations += creating(layout.item(id), Content(now, parcel.data).encode())
            if parcel.delay > 0:
                due = now + parcel.delay
                operations += Record(due).keeping(layout, Serial(id))
        if not (state.tail_version and tail.is_listed):
            operations += creating(layout.mark, marked())
        return after, list(dict.fromkeys(operations))  # several may mark the same bucket

    def _was_made(
        self, batch: Sequence[Parcel], state: State, begun: int, last: BackendUnavailable
    ) -> bool:
        """Whether an attempt without answer was made; then ``batch`` has its ids."""
        changes = state.tail_version - begun
        try:
            made = state.tail.made(self._name, self._operation, changes)
        except LookupError as unknown:
            reason = f"{last.reason}; whether it was put cannot be told: {unknown}"
            raise BackendUnavailable(last.service, reason) from last
        if made is None:
            return False
        self._resolve(batch, made.next, made.delayed)
        return True

    def _resolve(self, batch: Sequence[Parcel], first: int, first_delayed: int) -> None:
        for parcel, id in zip(batch, _ids(batch, first, first_delayed), strict=True):
            parcel.id.resolve(id)


def _admitted(batch: Sequence[Parcel], state: State) -> list[Parcel]:
    """What of ``batch`` there is room for at the tail.

    Items may have been claimed since the state was read, so there is at least that much.
    """
    waiting, admitted = state.waiting, []
    for parcel in batch:
        if parcel.delay > 0 or parcel.limit is None or waiting < parcel.limit:
            admitted.append(parcel)
            waiting += parcel.delay <= 0
    return admitted


def _ids(batch: Sequence[Parcel], first: int, first_delayed: int) -> Iterator[ItemId]:
    """The ids of ``batch``, whose first numbers are these."""
    numbers, delayed_numbers = count(first), count(first_delayed)
    for parcel in batch:
        is_delayed = parcel.delay > 0
        yield ItemId(next(delayed_numbers if is_delayed else numbers), is_delayed)
