"""What one client puts into a work queue: all that waits, in one write after the other.

Why no item is put twice, and none is lost without a word. A write expects the tail at the version
that was read, and changes it: so of all attempts at one version, by whichever client, one is made.
It notes in the tail the first number that its producer has put. After a lost answer the tail is
read again. If it has a number of that producer since the attempt began, the write was made. If not,
and 64 other producers have not pushed it out since, it was not made: the attempts at older versions
never will be, and one at this version excludes the next. A producer ends one write before it begins
another.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from bisect import bisect
from collections.abc import Sequence
from copy import copy
from typing import Final

from coordlock.backend.data import Expect, Operation, Put
from coordlock.errors import BackendUnavailable, VersionMismatch, WorkQueueFull
from coordlock.runtime.clock import sleep, soon
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise
from coordlock.work.layout import OLD, Entry, creating, milliseconds
from coordlock.work.records import Content, Tail, mark_written
from coordlock.work.store import Store

__all__ = ["Parcel", "Producer"]

#: How many items one write puts, and how many bytes: what all services take in one request.
_ITEMS: Final = 60
_BYTES: Final = 900_000
#: Seconds between two attempts: after a silence, and at most after others came first. That is
#: short, or those who are refused would be refused again by those who are not.
_PAUSE: Final = 0.1
_AFTER_OTHERS: Final = 0.006


class Parcel:
    """One item on its way: ``id`` is kept with its number when it was put."""

    __slots__ = ("data", "delay", "id", "limit", "unanswered")

    def __init__(self, data: bytes, delay: float, limit: int | None) -> None:
        """``limit`` is the depth up to which it may be put."""
        self.data: Final = data
        self.delay: Final = delay
        self.limit: Final = limit
        self.id: Final[Promise[int]] = Promise()
        #: Why the latest attempt has no answer.
        self.unanswered: BackendUnavailable | None = None


class Producer:
    """Puts the items of one client into one queue."""

    def __init__(self, store: Store) -> None:
        self._store: Final = store
        self._engine: Final = store.engine
        self._layout: Final = store.layout
        self._id: Final = secrets.token_hex(6)
        self._lock: Final = threading.RLock()
        self._waiting: list[Parcel] = []
        self._is_writing = False
        #: As last read, or written since; None where it has to be read.
        self._tail: Tail | None = None
        #: How many items were ready at most, and the next number, when that was counted.
        self._counted: tuple[float, int] = math.inf, 0

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

    def _put(self, parcel: Parcel) -> Steps[int]:
        try:
            return (yield from self._engine.bounded(self._sent(parcel)))
        except BackendUnavailable as error:
            if self._recall(parcel):
                raise
            reason = f"{error.reason}; the item may have been put, or may be yet"
            raise BackendUnavailable(error.service, reason) from error.__cause__

    def _sent(self, parcel: Parcel) -> Steps[int]:
        with self._lock:
            begins = not (self._is_writing or parcel.id.done())
        if begins:  # where Ctrl-C cannot strike, because others wait for it, too
            soon(self._engine.timers, self._begin)
            self._engine.check()  # after it was closed, nothing begins
        try:
            id: int = yield parcel.id
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
                self._tail = None
                for parcel in batch:
                    parcel.id.fail(copy(error))

    def _batch(self) -> list[Parcel]:
        """What goes into the next write, off the list of what waits."""
        with self._lock:
            size = number = 0
            for parcel in self._waiting[:_ITEMS]:
                size += len(parcel.data)
                if number and size > _BYTES:
                    break
                number += 1
            batch, self._waiting = self._waiting[:number], self._waiting[number:]
            self._is_writing = bool(batch)
            return batch

    def _write(self, batch: list[Parcel]) -> Steps[None]:
        """Put ``batch``, or fail its promises."""
        tail, self._tail = self._tail, None
        since = 0
        last: BackendUnavailable | None = None
        while True:
            if tail is None:
                tail = yield from self._store.tail()
            first: int | None = None
            if last is None:
                batch, since = (yield from self._admitted(batch, tail)), tail.next
            else:
                since = min(since, tail.next)  # a service that has lost its data counts anew
                first = self._first_of(tail, since, last)
            if first is not None or not batch:
                break
            after = tail.after(self._id, len(batch))
            try:
                yield self._store.backend.write(self._operations(batch, tail, after))
            except VersionMismatch:
                yield sleep(self._engine.timers, self._engine.timers.jitter(_AFTER_OTHERS))
            except BackendUnavailable as error:
                last = error
                for parcel in batch:
                    parcel.unanswered = error
                yield sleep(self._engine.timers, _PAUSE)
            else:
                first, tail = tail.next, after
                break
            tail = None
        self._tail = tail
        for number, parcel in enumerate(batch, first or 0):
            parcel.id.resolve(number)

    def _admitted(self, batch: Sequence[Parcel], tail: Tail) -> Steps[list[Parcel]]:
        """What of ``batch`` there is room for at ``tail``; the rest is refused.

        Items may have been claimed since they were counted, so there is at least that much room.
        """
        limits = [parcel.limit for parcel in batch if parcel.limit is not None]
        waiting = self._counted[0] + tail.next - self._counted[1]
        if limits and waiting + len(batch) > min(limits):
            found = yield from self._store.names(self._layout.ready, max(limits), OLD)
            waiting = bisect(found, OLD)
            # There may be more than that.
            self._counted = (waiting, tail.next) if waiting < max(limits) else (math.inf, 0)
        admitted = []
        for parcel in batch:
            if parcel.delay > 0 or parcel.limit is None or waiting < parcel.limit:
                admitted.append(parcel)
                waiting += parcel.delay <= 0
            else:
                parcel.id.fail(WorkQueueFull(self._layout.name, parcel.limit))
        return admitted

    def _operations(self, batch: Sequence[Parcel], tail: Tail, after: Tail) -> list[Operation]:
        """All that is written together."""
        layout, now = self._layout, time.time()
        operations: list[Operation] = [Expect(layout.tail, tail.version)]
        operations += Put(layout.tail, after.encode()), mark_written(layout)
        for number, parcel in enumerate(batch, tail.next):
            waits = parcel.delay > 0
            at = milliseconds() + int(parcel.delay * 1000) if waits else 0
            content = Content(now, parcel.data).encode()
            operations += creating(layout.item(number), content)
            operations += creating(f"{layout.ready}{Entry(int(waits), at, number)}", b"")
        return operations

    def _first_of(self, tail: Tail, since: int, last: BackendUnavailable) -> int | None:
        """The first number of a put without answer; None where it was not made."""
        try:
            return tail.first_of(self._id, since)
        except LookupError as unknown:
            reason = f"{last.reason}; whether it was put cannot be told: {unknown}"
            raise BackendUnavailable(last.service, reason) from last
