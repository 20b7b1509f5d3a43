"""A place that is followed, and those who observe it. All in the worker of the `DataSession`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from coordlock.backend import Listing
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.contender import Snapshot
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.errors import SERVICE
from coordlock_zookeeper.places import Place

__all__ = ["Following", "Observer", "Probe", "Reader"]

log = Log("coordlock.zookeeper")

State = TypeVar("State", Snapshot, Listing)


class Observer(Protocol):
    """An `Observation`, or a `Reader`."""

    def show(self, state: Any, /) -> None:
        """This is the newest state."""

    def doubt(self, since: float, /) -> None:
        """The newest state may have changed since then."""

    def end(self, error: CoordlockError, since: float, /) -> None:
        """Nothing more comes."""


class Probe(NamedTuple):
    """A transaction that changes nothing, and was answered.

    Attributes:
        sent: when.
        zxid: its number; all that had happened when it was sent has smaller ones.
    """

    sent: float
    zxid: int


class Reader(Generic[State]):
    """Wants one state, and gives up where an observation would go on."""

    def __init__(self, promise: Promise[State]) -> None:
        self._promise: Promise[State] = promise

    def show(self, state: State) -> None:
        self._promise.resolve(state)

    def doubt(self, since: float) -> None:
        self._promise.fail(BackendUnavailable(SERVICE, "the connection was lost"))

    def end(self, error: CoordlockError, since: float) -> None:
        self._promise.fail(error)


class Following:
    """A place, and its observers.

    Args:
        name: unique among the followings of a client.
        since: the present, in which nothing is known yet.

    Attributes:
        state: the newest state; None while it is in doubt.
        generation: counts how often the place was begun anew; answers to earlier requests are late.
    """

    def __init__(self, name: object, place: Place[Any], since: float) -> None:
        self.name: Final = name
        self.place: Final = place
        self.observers: list[Observer] = []
        self.state: Any = None
        self.generation = 0
        self._since = since

    def begin(self) -> None:
        """Read all of it anew."""
        self.generation += 1
        self.place.restart()

    def join(self, observer: Observer) -> None:
        """Tell ``observer``, too."""
        self.observers.append(observer)
        if self.state is not None:
            _call(lambda: observer.show(self.state))

    def show(self, state: Any, probes: Sequence[Probe]) -> None:
        """Show ``state``, the newest that is proven. It is as new as a probe that it includes."""
        self.state = state
        for probe in probes:
            if probe.zxid <= state.revision:
                self._since = max(self._since, probe.sent)
        self._tell(lambda one: one.show(state))

    def probed(self, sent: float, late: float) -> None:
        """A probe sent then was answered, behind the events of all earlier changes.

        What these have changed may have yet to be read. Then the state is as old as it was before.
        It is in doubt if it shows nothing from after ``late``: it changes faster than it is read.
        """
        if self.place.is_complete:
            self._since = sent
        elif self.state is not None and self._since <= late:
            self._doubt()

    def doubt(self) -> None:
        """The state may not be the newest any more, and answers under way are too late."""
        self.begin()
        self._doubt()

    def end(self, error: CoordlockError) -> None:
        """End all observations, because of ``error``."""
        self._tell(lambda one: one.end(error, self._since))

    def _doubt(self) -> None:
        self.state = None
        self._tell(lambda one: one.doubt(self._since))

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        for observer in self.observers.copy():
            _call(lambda: tell(observer))  # noqa: B023


def _call(tell: Callable[[], None]) -> None:
    try:
        tell()
    except Exception:
        log.exception("the callback of an observation failed")
