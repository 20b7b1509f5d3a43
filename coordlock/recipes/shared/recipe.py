"""What recipes have in common: a name in the service, and a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from coordlock.backend import Capability, Observation, Queue
from coordlock.kernel.access import Access
from coordlock.model.contender import Snapshot
from coordlock.model.names import check_name
from coordlock.runtime.driver import Steps
from coordlock.runtime.guards import Resident
from coordlock.settings import Default, Timeout, timeout_of

__all__ = ["QueueRecipe", "Recipe", "wait_of"]


def wait_of(access: Access, timeout: Timeout, call: str = "wait") -> float | None:
    """The seconds that ``call`` may wait: ``timeout``, by default the client's."""
    return timeout_of(call, access.settings.timeout if isinstance(timeout, Default) else timeout)


class Recipe(Resident):
    """What recipes with a name share."""

    _instead = "pass its name instead, and make another object with a client there"
    #: What the service must be capable of.
    _needs: ClassVar[tuple[Capability, ...]] = ("data",)
    #: What its ``repr`` says behind the name.
    _size = ""

    def __init__(self, access: Access, name: str) -> None:
        self.name: Final = check_name(name)
        self._access: Final = access
        for need in self._needs:
            access.engine.backend.require(need)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}{self._size} at {self._access.settings}>"


class QueueRecipe(Recipe):
    """What recipes share that read who is in the queue of their name."""

    _needs = ("publishing",)

    def _snapshot(self) -> Steps[Snapshot]:
        engine = self._access.engine
        return (yield from engine.ask(lambda: engine.backend.snapshot(self.name, owners=True)))

    def _begin(self, news: Callable[[], None]) -> Observation[Snapshot]:
        return self._access.engine.backend.follow(Queue(self.name), news)
