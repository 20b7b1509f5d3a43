"""Wall clocks that jump by hours and back, while CLOCK_MONOTONIC goes on as it does.

Neither ZooKeeper nor coordlock may measure durations by the wall clock. So these must do no harm:
`Reach.CLOCKS` excuses nothing.
"""

from __future__ import annotations

from coordlock_faults.events import Reach

from testbed.nemesis.fault_maker import Area, FaultMaker

__all__ = ["JumpClientClock", "JumpLeaderClock"]


class _Jump(FaultMaker):
    reach = Reach.CLOCKS
    area = Area.CLOCKS
    # Processes notice within a second.
    lasts = ((1.5, 5.0),)

    def strike(self) -> None:
        for name in self.targets:
            hours = self.random.choice([-1, 1]) * self.random.uniform(1, 24)
            self.system.clocks.clock(name).set(round(hours * 3600))

    def undo(self) -> None:
        for name in self.targets:
            self.system.clocks.clock(name).set(0)


class JumpLeaderClock(_Jump):
    """The leader's clock jumps. Not on etcd: Go's programs don't ask libc for the time."""

    name = "jump-leader-clock"
    systems = frozenset({"zookeeper"})


class JumpClientClock(_Jump):
    """A client's clock jumps."""

    name = "jump-client-clock"
    role = "client"
