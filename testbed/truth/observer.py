"""The observer of a run: which contenders the service had, by the service's own record.

It goes past the network that the nemesis breaks, with the service's own tools, and shares no code
with the clients but the names of keys: what coordlock does to learn the same is what is tested.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import ClassVar, Final, Self

from coordlock_faults.events import Counted, Surveyed
from coordlock_faults.journal import Journal

from coordlock.testing.waiting import eventually

__all__ = ["Observer", "ServiceBroken", "TruthIncomplete"]

#: Seconds for what dies by its time-to-live. An election starts that anew.
_SETTLING = 30.0
#: Seconds within which the record and the service agree. Somebody may come or go meanwhile.
AGREEMENT = 10.0
#: Whoever looks for longer, in seconds, was kept waiting, as by an election.
_PROMPT = 3.0
#: Seconds for clients to remove what they could not meanwhile, and how often they get them.
_RECOVERY = 5.0
_RECOVERIES: Final = 3
#: Seconds that closing may take to arrive; less than any time-to-live.
_FAREWELL = 1.0


class TruthIncomplete(Exception):
    """The service's record has a gap, or contradicts what the service holds now.

    ``locks`` are those of which it does; none for a gap.
    """

    def __init__(self, what: str, locks: Iterable[str] = ()) -> None:
        super().__init__(what)
        self.locks: Final = frozenset(locks)


class ServiceBroken(Exception):
    """The service contradicts itself, by a defect of its own: such a run has no verdict."""


class Observer(ABC):
    """The observer of one root in one service; a context manager that starts and closes it.

    Args:
        root: under which all locks of the run live. Nothing was below it before.
        journal: where `ContenderAppeared`, `ContenderDisappeared` and `Surveyed` go.
    """

    #: Of what is counted, that of which each client has one.
    per_client: ClassVar[tuple[str, ...]] = ()
    #: How many of these a client has, once it has observed something.
    each_client: ClassVar[int] = 1

    def __init__(self, root: str, journal: Journal) -> None:
        self._root = root
        self._journal = journal
        self._baseline: dict[str, int] = {}

    @abstractmethod
    def start(self) -> None:
        """Begin to observe. Everything under the root that comes later will be logged."""

    @abstractmethod
    def seen(self) -> int:
        """The revision up to which history is needed no more, so that it may be compacted away."""

    def survey(self) -> None:
        """Log everything up to a revision that is current when this is called, then `Surveyed`.

        For after quiescence: the servers must be well. On a busy machine they may elect a leader
        all the same, and clients lose what they cannot remove meanwhile; they get a moment for it.
        It ends the observing: what comes then is no part of the run. Raises `TruthIncomplete`.
        """
        for _ in range(_RECOVERIES):
            began = time.monotonic()
            revision = self.agreed()
            if time.monotonic() - began < _PROMPT:
                break
            time.sleep(_RECOVERY)
        else:
            revision = self.agreed()
        self.close()
        self.log_events()
        self._journal.log(Surveyed, revision)

    @abstractmethod
    def agreed(self) -> int:
        """A revision up to which the record says what the service holds now.

        Raises `TruthIncomplete` after `AGREEMENT` seconds.
        """

    def log_events(self) -> None:
        """Log what was not logged when it happened."""

    @abstractmethod
    def close(self) -> None:
        """End observing. Idempotent."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """How many there are now, in the service, of what clients can leave behind."""

    def contradictions(self) -> dict[str, str]:
        """The locks of which the service has broken its own promises, and what shows that.

        For a run that could not be judged: who waits for what only one member shows waits for good.
        """
        return {}

    def count(self, journal: Journal, baseline: bool, sessions: int = 0) -> None:
        """Log a `Counted` for each of `counts`.

        So many ``sessions`` are not counted, because there are clients for them; on a busy machine
        one may just have been lost. Those of the dead, and what belongs to them, go only when they
        expire. So what is more than at the baseline gets half a minute for that.
        """

        def counted() -> dict[str, int]:
            counts = self.counts()
            for what in self.per_client:
                counts[f"{what} beyond those of clients"] = max(0, counts.pop(what) - sessions)
            return counts

        counts = counted()

        def settled() -> bool:
            nonlocal counts
            counts = counted()
            return all(count <= self._baseline.get(what, 0) for what, count in counts.items())

        if baseline:
            self._baseline = counts
        else:
            with suppress(TimeoutError):
                eventually(settled, within=_SETTLING)
        for what, count in counts.items():
            journal.log(Counted, what, count, baseline)

    def count_left(self, journal: Journal) -> None:
        """Log a `Counted` for what closed clients have left of `per_client`, which is to be none.

        They end their sessions themselves: nothing has the time to die by its time-to-live.
        """

        left: dict[str, int] = {}

        def is_nothing_left() -> bool:
            nonlocal left
            counts = self.counts()  # which may leave a connection of its own behind for a moment
            left = {what: counts[what] for what in self.per_client}
            return not any(left.values())

        with suppress(TimeoutError):
            eventually(is_nothing_left, within=_FAREWELL)
        for what, count in left.items():
            journal.log(Counted, f"{what} after all clients have closed", 0, True)
            journal.log(Counted, f"{what} after all clients have closed", count, False)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
