"""Observers of one place of the service, and all the states that the place has had."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from coordlock_memory import MemoryService

from coordlock.backend import Queue
from coordlock.recipes.shared.observer import Observer

__all__ = ["Followers"]

S = TypeVar("S")


class Followers(Generic[S]):
    """What an observer shows was so once, and later than, or at, what it has shown before."""

    def __init__(
        self,
        service: MemoryService,
        place: Queue | str,
        show: Callable[[Any], S],
    ) -> None:
        """``show`` makes what an observer is to show of what the service has at ``place``."""
        self._read: Callable[[], Any] = (
            partial(service.snapshot, place.name)
            if isinstance(place, Queue)
            else partial(service.read, place)
        )
        self._show = show
        self._history = [self.present]
        self._observers: list[Observer[Any]] = []
        #: How far in the history each of them is.
        self._seen: list[int] = []
        #: What each of them has shown last: it is compared once.
        self._looked_at: list[object] = []
        service.observe(place, lambda: self._history.append(self.present))

    @property
    def present(self) -> S:
        """What is to be shown now."""
        return self._show(self._read())

    @property
    def shown(self) -> list[S]:
        """What each observer shows that shows anything."""
        known = [one for one in self._observers if one._observation.view.state is not None]
        return [one.state for one in known]

    def add(self, observer: Observer[Any]) -> None:
        """One more."""
        self._observers.append(observer)
        self._seen.append(0)
        self._looked_at.append(None)

    def check(self) -> None:
        """What must hold after every event."""
        for number, observer in enumerate(self._observers):
            state = observer._observation.view.state
            if state is not None and state is not self._looked_at[number]:
                self._looked_at[number] = state
                past = self._history[self._seen[number] :]
                assert observer.state in past, "it never was so, or before"
                self._seen[number] += past.index(observer.state)

    def check_present(self) -> None:
        """What must hold when nothing has changed for a while, but for clients that are closed."""
        for observer in [one for one in self._observers if not one._engine.closed]:
            assert observer.state == self.present
            assert observer.stale_for is None

    def close(self) -> None:
        """Follow no longer."""
        for observer in self._observers:
            observer.close()
        self._observers.clear()
