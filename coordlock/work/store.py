"""One work queue as a client reaches it: its readings, and writes until their outcome is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Final, TypeVar

from coordlock.backend.data import Expect, Listing, Operation, Read, Written
from coordlock.errors import BackendUnavailable, VersionMismatch
from coordlock.kernel.engine import Engine
from coordlock.model.contender import Contender, Snapshot
from coordlock.runtime.clock import sleep
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps, bounded
from coordlock.runtime.promise import Promise
from coordlock.work.layout import NEVER, Layout, Serial, emptied
from coordlock.work.records import Record, State, check_mark, serials

__all__ = ["Outcome", "Store", "Writing"]

T = TypeVar("T")

#: Seconds between two attempts.
_PAUSE: Final = 0.1


class Outcome(Enum):
    """What came of a write."""

    MADE = "made"
    REFUSED = "refused"  #: something that it expects is not so
    UNCLEAR = "unclear"  #: the same, but an attempt without answer may be what has changed it


class Store:
    """The engine, its service, and where that keeps the queue."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Raises `Unsupported` where the service keeps no data or no order."""
        engine.backend.require("data")
        engine.backend.require("ordered")
        self.engine: Final = engine
        self.backend: Final = engine.backend
        self.layout: Final = Layout(engine.data_root, name)

    def bounded(self, steps: Steps[T]) -> Steps[T]:
        """The result of ``steps``, one request of many, each of which has the whole time."""
        return bounded(steps, self.engine.deadline(self.engine.settings.request_timeout))

    def read(self, where: str) -> Steps[Listing]:
        """What is kept at ``where``, asked for until there is an answer."""
        return (yield from self.engine.repeated(lambda: self.backend.read(where)))

    def state(self, *, lanes: bool = True) -> Steps[State]:
        """The state, of whose parts each may show a moment of its own. Raises `NameConflict`.

        Without ``lanes`` these are as in a new queue.

        The lanes come before the tail. So lanes that have all reached the tail had reached it at
        one moment, when no new item was there. The changes come last.
        """
        layout = self.layout
        keys = (*(layout.lanes if lanes else ()), layout.tail, layout.changes)
        reads = [Read(key) for key in keys]
        written = yield from self.engine.repeated(lambda: self.backend.write(reads))
        return (yield from self.state_in(written))

    def state_in(self, found: Listing | Written) -> Steps[State]:
        """The state that was ``found``. Raises `NameConflict`."""
        state = State.read(self.layout, found.values)
        if not (state.tail_version and state.tail.is_listed):
            # The queue is new or deleted, or a later release keeps it elsewhere.
            check_mark(self.layout, (yield from self.read(self.layout.mark)))
        return state

    def kept(
        self,
        until: float,
        since: float = 0.0,
        enough: float = math.inf,
        changes: int | None = None,
    ) -> Steps[tuple[dict[Serial, tuple[str, Record]], float]]:
        """The kept items that are due from ``since`` to ``until``; when the next one is due.

        Stops once it has found ``enough``. Takes folders out of use that are empty, unless the
        queue has changed since these ``changes``.
        """
        tree, next_due = self.layout.kept, math.inf
        due: dict[Serial, tuple[str, Record]] = {}

        def opened(folder: str, seconds: int) -> Steps[list[tuple[float, str, str]]]:
            """What ``folder`` names: when it opens, its key and its name."""
            names = [(key, key.rpartition("/")[2]) for key in (yield from self.read(folder)).values]
            return sorted((int(name.partition(".")[0]) * seconds, key, name) for key, name in names)

        def clear(key: str, folder: str) -> Steps[None]:
            if changes is not None:
                yield from self.write([Expect(self.layout.changes, changes), *emptied(key, folder)])

        for opens, hour_key, hour in (yield from opened(tree.hours, 3600)):
            if opens < since:
                continue
            if opens > until:
                next_due = min(next_due, opens)
                break
            slots = yield from opened(tree.slots(hour), 60)
            for slot_opens, slot_key, slot in slots:
                if slot_opens > until:
                    next_due = min(next_due, slot_opens)
                    break
                if len(due) >= enough:
                    return due, until
                found = serials((yield from self.read(tree.folder(slot))))
                for one, (key, stored) in found.items():
                    record = Record.decode(key, stored)
                    if record.at <= until:
                        due[one] = key, record
                    else:
                        next_due = min(next_due, record.at)
                if not found:
                    yield from clear(slot_key, tree.folder(slot))
            if not slots:
                yield from clear(hour_key, tree.slots(hour))
        return due, next_due if next_due < NEVER else math.inf

    def workers(self, *, owners: bool = True) -> Steps[Snapshot]:
        """All contenders of the workers: with ``owners`` as they are at a moment of this call."""
        queue = self.layout.workers
        ask = partial(self.backend.snapshot, queue, owners=owners)
        return (yield from self.engine.repeated(ask))

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Steps[Outcome]:
        """Make a write that can be made only once: see `Writing`."""
        return (yield from Writing(self, operations, guards).steps())


class Writing:
    """A write that can be made only once, because it changes what it expects.

    It is repeated while the service is unavailable. So an attempt that arrives late does what the
    others would have done, or nothing.
    """

    def __init__(
        self, store: Store, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> None:
        """Send the first attempt."""
        self._store: Final = store
        self._operations: Final = operations
        self._guards: Final = guards
        #: Why an attempt has no answer, and may be made yet; None while all were answered.
        self.unanswered: BackendUnavailable | None = None
        #: What the write has found, once it was made and answered.
        self.written: Written | None = None
        self._answer = self._send()

    def steps(self) -> Steps[Outcome]:
        """What comes of it.

        Where the caller's deadline ends it, `DeadlineReached` has the last failure as its cause,
        and the write may have been made, or may be yet. Raises what else `Backend.write` fails
        with; then it was not made, unless an attempt is `unanswered`.
        """
        try:
            while True:
                try:
                    self.written = yield self._answer
                    return Outcome.MADE
                except VersionMismatch:
                    return Outcome.REFUSED if self.unanswered is None else Outcome.UNCLEAR
                except BackendUnavailable as error:
                    self.unanswered = error
                yield sleep(self._store.engine.timers, _PAUSE)
                self._answer = self._send()
        except DeadlineReached as late:
            raise late from self.unanswered

    def _send(self) -> Promise[Written]:
        return self._store.backend.write(self._operations, self._guards)
