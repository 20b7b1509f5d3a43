"""For backends: which watches the service may tell of later than of others."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Belated"]

W = TypeVar("W", bound=Hashable)


class Belated(Generic[W]):
    """The watches of each queue of which it is not certain that the service tells them in order.

    As long as there is one, a departure in its queue may have happened after another that is yet
    to be told. Not safe for threads.
    """

    def __init__(self) -> None:
        self._watches: dict[Hashable, set[W]] = {}

    def __contains__(self, queue: Hashable) -> bool:
        return queue in self._watches

    def add(self, queue: Hashable, watch: W) -> None:
        """From now on ``watch`` may be told late."""
        self._watches.setdefault(queue, set()).add(watch)

    def discard(self, queue: Hashable, watch: W) -> None:
        """From now on ``watch`` is told in order, or it has ended."""
        watches = self._watches.get(queue, set())
        watches.discard(watch)
        if not watches:
            self._watches.pop(queue, None)

    def clear(self) -> None:
        """All watches have ended."""
        self._watches.clear()
