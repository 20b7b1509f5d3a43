"""Faults of the clients' processes."""

from __future__ import annotations

from coordlock_faults.events import Reach

from testbed.nemesis.fault_maker import Area, FaultMaker

__all__ = ["KillClient", "PauseClient"]


class PauseClient(FaultMaker):
    """A client stands still, for less or for longer than its session lives."""

    name = "pause-client"
    reach = Reach.PAUSED
    area = Area.CLIENTS
    role = "client"
    lasts = (0.2, 1.5), (4.5, 7.0)

    def strike(self) -> None:
        self.scene.clients.pause(self.targets[0])

    def undo(self) -> None:
        self.scene.clients.resume(self.targets[0])


class KillClient(FaultMaker):
    """A client is killed; another one comes."""

    name = "kill-client"
    reach = Reach.KILLED
    area = Area.CLIENTS
    role = "client"

    def strike(self) -> None:
        self.scene.clients.kill(self.targets[0])
        self.log_end()
        self.scene.clients.spawn()
