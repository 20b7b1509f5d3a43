"""Faults of the network. What is held back is delivered in the end, as TCP would, or reset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from coordlock_faults.events import Reach

from testbed.nemesis.fault_maker import CLUSTERS, SERVICES, Area, FaultMaker, Ranges
from testbed.network.disturbance import Disturbance

__all__ = ["LINK_FAULTS"]


class _LinkFault(FaultMaker):
    """Disturbs the links of its one target."""

    reach = Reach.NETWORK
    lasts: ClassVar[Ranges] = (0.3, 1.5), (3.0, 6.0)

    @abstractmethod
    def disturb(self, name: str) -> Iterator[Disturbance]:
        """Begin them."""

    def strike(self) -> None:
        self._disturbances: list[Disturbance] = []
        [name] = self.targets
        self._disturbances.extend(self.disturb(name))

    def undo(self) -> None:
        for one in self._disturbances:
            self.system.network.end(one)
        # Some of what was held back arrives late, some never: both happen.
        if self.random.random() < 0.5:
            self.system.network.reset(self.targets[0])


class _Isolation(_LinkFault):
    """Nobody hears of it, and it hears of nobody."""

    def disturb(self, name: str) -> Iterator[Disturbance]:
        yield self.system.network.isolate(name)


class _Muting(_LinkFault):
    """The nodes do not hear it, and it hears them."""

    def disturb(self, name: str) -> Iterator[Disturbance]:
        for node in self.system.nodes:
            if node != name:
                yield self.system.network.silence(name, node)


class _Deafening(_LinkFault):
    """It does not hear the nodes, and they hear it."""

    def disturb(self, name: str) -> Iterator[Disturbance]:
        for node in self.system.nodes:
            if node != name:
                yield self.system.network.silence(node, name)


class _Slowness(_LinkFault):
    """Everything from and to it takes its time."""

    lasts = ((2.0, 6.0),)

    def disturb(self, name: str) -> Iterator[Disturbance]:
        yield self.system.network.slow(name, self.random.uniform(0.02, 0.5))


class _Parting(_LinkFault):
    """It and the other nodes do not hear each other; its clients still hear it."""

    def disturb(self, name: str) -> Iterator[Disturbance]:
        for node in self.system.nodes:
            if node != name:
                yield self.system.network.silence(name, node)
                yield self.system.network.silence(node, name)


class ResetClient(FaultMaker):
    """All connections of a client are reset."""

    name = "reset-client"
    reach = Reach.NETWORK
    area = Area.CLIENTS
    role = "client"

    def strike(self) -> None:
        self.system.network.reset(self.targets[0])


_ROLES: Final = ("leader", "follower", "client")


def _of(role: str, what: str, kind: type[_LinkFault], *, alone: bool = True) -> Any:
    """The fault ``what``-``role``; ``alone``: a leader without followers may suffer it, too."""
    facts = {
        "name": f"{what}-{role}",
        "role": role,
        "area": Area.CLIENTS if role == "client" else Area.NODES,
        "systems": SERVICES if alone and role != "follower" else CLUSTERS,
    }
    return type(f"{kind.__name__}-{role}", (kind,), facts)


#: All of them.
LINK_FAULTS: Final[tuple[type[FaultMaker], ...]] = (
    ResetClient,
    _of("leader", "part", _Parting, alone=False),
    *(_of(role, "isolate", _Isolation) for role in _ROLES),
    *(_of(role, "slow", _Slowness) for role in _ROLES),
    *(_of(role, "mute", _Muting, alone=role == "client") for role in _ROLES),
    *(_of(role, "deafen", _Deafening, alone=role == "client") for role in _ROLES),
)
