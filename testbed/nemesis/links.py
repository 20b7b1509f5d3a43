"""Faults of the network. What is held back is delivered in the end, as TCP would, or reset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from coordlock_faults.events import Reach

from testbed.nemesis.fault_maker import CLUSTERS, Area, FaultMaker, Ranges
from testbed.network.disturbance import Disturbance

__all__ = [
    "DeafenClient",
    "DeafenFollower",
    "DeafenLeader",
    "IsolateClient",
    "IsolateFollower",
    "IsolateLeader",
    "LossyClient",
    "LossyFollower",
    "LossyLeader",
    "MuteClient",
    "MuteFollower",
    "MuteLeader",
    "PartLeader",
    "ResetClient",
    "SlowClient",
    "SlowFollower",
    "SlowLeader",
]


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


class _OfLeader(_LinkFault):
    area = Area.NODES

    def choose(self) -> tuple[str, ...]:
        return self.leader()


class _OfFollower(_LinkFault):
    area = Area.NODES
    systems = CLUSTERS

    def choose(self) -> tuple[str, ...]:
        return self.follower()


class _OfClient(_LinkFault):
    area = Area.CLIENTS

    def choose(self) -> tuple[str, ...]:
        return self.client()


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


class _Lossiness(_LinkFault):
    """Packets from and to it get lost: stalls, and connections that break."""

    lasts = ((2.0, 6.0),)

    def disturb(self, name: str) -> Iterator[Disturbance]:
        yield self.system.network.lossy(name, self.random)


class IsolateLeader(_Isolation, _OfLeader):
    name = "isolate-leader"


class IsolateFollower(_Isolation, _OfFollower):
    name = "isolate-follower"


class IsolateClient(_Isolation, _OfClient):
    name = "isolate-client"


class PartLeader(_OfLeader):
    """It and the other nodes do not hear each other; its clients still hear it."""

    name = "part-leader"
    systems = CLUSTERS

    def disturb(self, name: str) -> Iterator[Disturbance]:
        for node in self.system.nodes:
            if node != name:
                yield self.system.network.silence(name, node)
                yield self.system.network.silence(node, name)


class MuteLeader(_Muting, _OfLeader):
    name = "mute-leader"
    systems = CLUSTERS


class MuteFollower(_Muting, _OfFollower):
    name = "mute-follower"


class MuteClient(_Muting, _OfClient):
    name = "mute-client"


class DeafenLeader(_Deafening, _OfLeader):
    name = "deafen-leader"
    systems = CLUSTERS


class DeafenFollower(_Deafening, _OfFollower):
    name = "deafen-follower"


class DeafenClient(_Deafening, _OfClient):
    name = "deafen-client"


class SlowLeader(_Slowness, _OfLeader):
    name = "slow-leader"


class SlowFollower(_Slowness, _OfFollower):
    name = "slow-follower"


class SlowClient(_Slowness, _OfClient):
    name = "slow-client"


class LossyLeader(_Lossiness, _OfLeader):
    name = "lossy-leader"


class LossyFollower(_Lossiness, _OfFollower):
    name = "lossy-follower"


class LossyClient(_Lossiness, _OfClient):
    name = "lossy-client"


class ResetClient(FaultMaker):
    """All connections of a client are reset."""

    name = "reset-client"
    reach = Reach.NETWORK
    area = Area.CLIENTS

    def choose(self) -> tuple[str, ...]:
        return self.client()

    def strike(self) -> None:
        self.system.network.reset(self.targets[0])
