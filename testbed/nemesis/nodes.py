"""Faults of the servers' processes: all of them are within what a majority survives, but one."""

from __future__ import annotations

from typing import ClassVar

from coordlock_faults.events import Reach

from testbed.nemesis.fault_maker import CLUSTERS, Area, FaultMaker, Ranges

__all__ = [
    "KillFollower",
    "KillLeader",
    "PauseFollower",
    "PauseLeader",
    "RestartAll",
]


class _NodeFault(FaultMaker):
    reach = Reach.SERVERS
    area = Area.NODES


class PauseLeader(_NodeFault):
    """The leader stands still, for less or for longer than an election and a time-to-live take."""

    name = "pause-leader"
    lasts = (0.2, 1.5), (3.0, 6.0)

    def strike(self) -> None:
        for name in self.targets:
            self.system.nodes[name].pause()

    def undo(self) -> None:
        for name in self.targets:
            if self.system.nodes[name].is_running:
                self.system.nodes[name].resume()


class PauseFollower(PauseLeader):
    """A follower stands still; its clients wait, or go elsewhere."""

    name = "pause-follower"
    role = "follower"
    systems = CLUSTERS


class KillLeader(_NodeFault):
    """The leader is killed, and comes back some time later."""

    name = "kill-leader"
    lasts: ClassVar[Ranges] = (0.0, 0.5), (1.0, 4.0)

    def strike(self) -> None:
        for name in self.targets:
            self.system.kill_node(name)

    def undo(self) -> None:
        for name in self.targets:
            if not self.system.nodes[name].is_running:
                self.system.start_node(name)
        for name in self.targets:
            self.system.nodes[name].wait_until_answers()


class KillFollower(KillLeader):
    """A follower is killed, and comes back some time later."""

    name = "kill-follower"
    role = "follower"
    systems = CLUSTERS


class RestartAll(KillLeader):
    """All nodes are killed at once, and come back with what is on their disks."""

    name = "restart-all"
    systems = CLUSTERS
    lasts = ((0.0, 1.5),)

    def choose(self) -> tuple[str, ...]:
        return tuple(self.system.nodes)
