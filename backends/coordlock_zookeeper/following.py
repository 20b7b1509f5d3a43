"""A place that is followed, for all who observe it. All in the worker of the `DataSession`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from coordlock.backend import Source
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.errors import SERVICE
from coordlock_zookeeper.places import Place

__all__ = ["Following", "Probe"]


class Probe(NamedTuple):
    """A transaction that changes nothing, and was answered.

    Attributes:
        sent: when.
        zxid: its number; all that had happened when it was sent has smaller ones.
    """

    sent: float
    zxid: int


class Following:
    """A place, and what observers are shown of it.

    Args:
        name: unique among the followings of a client.
        since: the present, in which nothing is known yet.
        reader: wants one state, and fails where an observation would go on.

    Attributes:
        source: what observers are shown.
        generation: counts how often the place was begun anew; answers to earlier requests are late.
    """

    def __init__(
        self,
        name: object,
        place: Place[Any],
        since: float,
        reader: Promise[Any] | None = None,
    ) -> None:
        self.name: Final = name
        self.place: Final = place
        self.source: Final[Source[Any]] = Source(since)
        self.generation = 0
        self._since = since
        self._reader: Final = reader

    def begin(self) -> None:
        """Read all of it anew."""
        self.generation += 1
        self.place.restart()

    def show(self, state: Any, probes: Sequence[Probe]) -> None:
        """Show ``state``, the newest that is proven. It is as new as a probe that it includes."""
        for probe in probes:
            if probe.zxid <= state.revision:
                self._since = max(self._since, probe.sent)
        if self._reader is not None:
            self._reader.resolve(state)
        self.source.show(state)
        self.source.tell()

    def probed(self, sent: float, late: float) -> None:
        """A probe sent then was answered, behind the events of all earlier changes.

        What these have changed may have yet to be read. Then the state is as old as it was before.
        It is in doubt if it shows nothing from after ``late``: it changes faster than it is read.
        """
        if self.place.is_complete:
            self._since = sent
        elif self.source.view.stale_since is None and self._since <= late:
            self._doubt()

    def doubt(self) -> None:
        """The state may not be the newest any more, and answers under way are too late."""
        self.begin()
        self._doubt()

    def end(self, error: CoordlockError) -> None:
        """End all observations, because of ``error``."""
        if self._reader is not None:
            self._reader.fail(error)
        self.source.end(error, self._since)

    def _doubt(self) -> None:
        if self._reader is not None:
            self._reader.fail(BackendUnavailable(SERVICE, "the connection was lost"))
        self.source.doubt(self._since)
        self.source.tell()
