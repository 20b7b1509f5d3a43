"""The observer of a run: which contenders the service had, by the service's own record.

It goes past the network that the nemesis breaks, with the service's own tools, and shares no code
with the clients but the names of keys: what coordlock does to learn the same is what is tested.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from coordlock_faults.events import Surveyed
from coordlock_faults.journal import Journal

__all__ = ["Observer", "ServiceBroken", "TruthIncomplete"]

#: Seconds within which the record and the service agree. Somebody may come or go meanwhile.
AGREEMENT = 10.0
#: Whoever looks for longer, in seconds, was kept waiting, as by an election.
_PROMPT = 3.0
#: Seconds for clients to remove what they could not meanwhile, and how often they get them.
_RECOVERY = 5.0
_RECOVERIES: Final = 3


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

    def __init__(self, root: str, journal: Journal) -> None:
        self._root = root
        self._journal = journal

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

    def contradictions(self) -> dict[str, str]:
        """The locks of which the service has broken its own promises, and what shows that.

        For a run that could not be judged: who waits for what only one member shows waits for good.
        """
        return {}

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
