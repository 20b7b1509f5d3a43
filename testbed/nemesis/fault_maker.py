"""A fault: what it is called, whom it chooses, how it begins and ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from random import Random
from typing import ClassVar, Final, Literal, Protocol

from coordlock_faults.events import FaultBegan, FaultHealed, Reach
from coordlock_faults.journal import Journal

from coordlock.testing.waiting import eventually
from testbed.systems.system import System

__all__ = ["CLUSTERS", "SERVICES", "Area", "Clients", "FaultMaker", "Ranges", "Scene"]

#: The services whose nodes decide together who leads, and all.
CLUSTERS: Final = frozenset({"etcd", "zookeeper", "redis-sentinel"})
SERVICES: Final = CLUSTERS | {"postgresql", "postgresql-standby", "redis"}
#: Of seconds: one is chosen, and then a time in it.
Ranges = Sequence[tuple[float, float]]


class Clients(Protocol):
    """The client processes, as the nemesis knows them."""

    def names(self) -> list[str]:
        """Those that live."""

    def pause(self, name: str) -> None:
        """SIGSTOP."""

    def resume(self, name: str) -> None:
        """SIGCONT; nothing, for one that is not paused or has ended."""

    def kill(self, name: str) -> None:
        """SIGKILL, paused or not; it is dead when this returns."""

    def spawn(self) -> str:
        """One more, with a name that nobody had before; its name."""


class Area(Enum):
    """What a fault strikes. There are never two at once in one area.

    So a majority of the nodes is always well, but for restarts of all.
    """

    NODES = auto()
    CLIENTS = auto()
    CLOCKS = auto()
    SERVICE = auto()


@dataclass(frozen=True, slots=True)
class Scene:
    """Where faults happen.

    Attributes:
        system, clients, root: the service, who uses it, and under which root.
        journal: where faults are logged.
        compactable: up to which revision etcd's history is not needed any more; 0: none is known.
        numbers: of the faults.
    """

    system: System
    clients: Clients
    root: str
    journal: Journal
    compactable: Callable[[], int]
    numbers: Iterator[int] = field(default_factory=lambda: count(1))


class FaultMaker(ABC):
    """One fault. It is begun once, and then ended, unless it is of one stroke.

    Attributes:
        name: in the catalogue, and in histories.
        reach: what it touches; so what it excuses.
        area: what it strikes.
        role: whom it strikes by itself: a leader, follower or client.
        lasts: how long; none: it is of one stroke.
        systems: the services that it is for.
        loses_data: whether the service may lose what it has acknowledged.
    """

    name: ClassVar[str]
    reach: ClassVar[Reach]
    area: ClassVar[Area]
    role: ClassVar[Literal["leader", "follower", "client"]] = "leader"
    lasts: ClassVar[Ranges] = ()
    systems: ClassVar[frozenset[str]] = SERVICES
    loses_data: ClassVar[bool] = False

    def __init__(self, scene: Scene, random: Random) -> None:
        self.scene: Final = scene
        self.random: Final = random
        self.targets: tuple[str, ...] = ()
        self._logged: str | None = None

    @property
    def system(self) -> System:
        """The system."""
        return self.scene.system

    def choose(self) -> tuple[str, ...]:
        """The targets as they are logged; none: there is nobody to strike."""
        roles = {"leader": self._leader, "follower": self._follower, "client": self._client}
        return roles[self.role]()

    @abstractmethod
    def strike(self) -> None:
        """Make it, to ``targets``."""

    def undo(self) -> None:
        """End it. Everything is as it was when this returns."""

    def begin(self) -> None:
        """Choose, log, strike."""
        self.targets = self.choose()
        if self.targets:
            self.log_beginning()
            self.strike()
            if not self.lasts:
                self.log_end()

    def end(self) -> None:
        """Undo, log. Idempotent, and nothing where it has not begun."""
        if self._logged is not None:
            self.undo()
            self.log_end()

    def log_beginning(self) -> None:
        """Say what is about to be done to ``targets``."""
        self._logged = f"{self.name}-{next(self.scene.numbers)}"
        self.scene.journal.log(FaultBegan, self._logged, self.name, self.reach, self.targets)

    def log_end(self) -> None:
        """Say that it is over. Idempotent."""
        if self._logged is not None:
            self.scene.journal.log(FaultHealed, self._logged)
            self._logged = None

    def _leader(self) -> tuple[str, ...]:
        """The node that leads; none, where none does for seconds."""
        found: list[str] = []

        def look() -> bool:
            leader = self.system.leader()
            found.extend([leader] if leader else [])
            return bool(found)

        try:
            eventually(look, within=5)
        except TimeoutError:
            return ()
        return (found[0],)

    def _follower(self) -> tuple[str, ...]:
        """A node that does not lead."""
        leader = self._leader()
        return (self.random.choice([n for n in self.system.nodes if n not in leader]),)

    def _client(self) -> tuple[str, ...]:
        """A client."""
        names = self.scene.clients.names()
        return (self.random.choice(names),) if names else ()
