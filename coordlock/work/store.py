"""One work queue as a client reaches it: its readings, and writes until their outcome is known."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Final, TypeVar

from coordlock.backend.data import Listing, Operation, Written
from coordlock.errors import BackendUnavailable, VersionMismatch
from coordlock.kernel.engine import Engine
from coordlock.model.contender import Contender, Snapshot
from coordlock.runtime.clock import sleep
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps, bounded
from coordlock.runtime.promise import Promise
from coordlock.work.layout import Layout, later_than_now
from coordlock.work.records import Tail, check_mark, entry_in

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
        self._is_checked = False

    def bounded(self, steps: Steps[T]) -> Steps[T]:
        """The result of ``steps``, one request of many, each of which has the whole time."""
        return bounded(steps, self.engine.deadline(self.engine.settings.request_timeout))

    def read(self, where: str) -> Steps[Listing]:
        """What is kept at ``where``, asked for until there is an answer."""
        return (yield from self.engine.repeated(lambda: self.backend.read(where)))

    def names(self, folder: str, first: int | None = None, split: str = "") -> Steps[list[str]]:
        """Those of the entries in ``folder``, asked for until there is an answer.

        See `Backend.names`. They are compared as they are, because to parse many takes long. Raises
        `BackendError` where the first or the last is another program's.
        """
        ask = partial(self.backend.names, folder, first, split)
        names = yield from self.engine.repeated(ask)
        for name in (*names[:1], *names[-1:]):
            entry_in(folder + name)
        return names

    def tail(self) -> Steps[Tail]:
        """Where items are put. Raises `NameConflict`."""
        yield from self.check()
        stored = (yield from self.read(self.layout.tail)).values.get(self.layout.tail)
        return Tail() if stored is None else Tail.decode(self.layout, stored)

    def check(self) -> Steps[None]:
        """Raise `NameConflict` where a later release keeps the queue elsewhere."""
        if not self._is_checked:
            check_mark(self.layout, (yield from self.read(self.layout.mark)))
            self._is_checked = True

    def ready(self) -> Steps[int]:
        """How many items may be claimed now."""
        return bisect((yield from self.names(self.layout.ready)), later_than_now())

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
