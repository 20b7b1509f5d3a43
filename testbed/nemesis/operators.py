"""What operators do: to contenders and sessions that are not theirs, and to the service.

An act is logged with exactly the contenders or the session that it strikes, so that it excuses no
other. One without an answer may be done yet: it is over when the nemesis has healed everything.
"""

from __future__ import annotations

from coordlock_faults.events import Reach

from testbed.nemesis.fault_maker import Area, FaultMaker
from testbed.systems.etcd import EtcdSystem

__all__ = ["Compact", "RemoveContender", "RemoveQueue", "RevokeSession"]


class RemoveContender(FaultMaker):
    """Somebody's contender is deleted, whether it waits or holds."""

    name = "remove-contender"
    reach = Reach.OPERATOR
    area = Area.SERVICE
    systems = frozenset({"etcd", "postgresql", "zookeeper"})

    def choose(self) -> tuple[str, ...]:
        keys = self.system.contenders(self.scene.root)
        return (self.random.choice(keys),) if keys else ()

    def strike(self) -> None:
        self.system.remove(self.targets)


class RemoveQueue(FaultMaker):
    """All contenders of a lock are deleted, and in ZooKeeper their parent under the waiters."""

    name = "remove-queue"
    reach = Reach.OPERATOR
    area = Area.SERVICE
    systems = frozenset({"etcd", "postgresql", "zookeeper"})

    #: How often it is tried, where somebody always comes between the contenders and the parent.
    tries = 20
    #: So many contenders are deleted by one act, because it names them all in one line.
    at_once = 25

    def choose(self) -> tuple[str, ...]:
        queues = self.system.queues(self.scene.root)
        self._queue = self.random.choice(sorted(queues)) if queues else ""
        return tuple(queues[self._queue]) if queues else ()

    def begin(self) -> None:
        keys = self.choose()
        self._is_gone = False
        for _ in range(self.tries):
            # Those who come meanwhile are not deleted: the next try names them.
            while keys:
                self.targets, keys = keys[: self.at_once], keys[self.at_once :]
                self._is_last = not keys
                self.log_beginning()
                self.strike()
                self.log_end()
            keys = tuple(self.system.queues(self.scene.root).get(self._queue, ()))
            if self._is_gone or not keys:
                return

    def strike(self) -> None:
        if self._is_last:
            self._is_gone = self.system.remove_queue(self._queue, self.targets)
        else:
            self.system.remove(self.targets)


class _EtcdFault(FaultMaker):
    area = Area.SERVICE
    systems = frozenset({"etcd"})

    @property
    def system(self) -> EtcdSystem:
        system = self.scene.system
        assert isinstance(system, EtcdSystem)
        return system


class RevokeSession(_EtcdFault):
    """Somebody's lease is revoked, and all that he has is gone."""

    name = "revoke-session"
    reach = Reach.OPERATOR

    def choose(self) -> tuple[str, ...]:
        sessions = self.system.sessions(self.scene.root)
        return (self.random.choice(sessions),) if sessions else ()

    def strike(self) -> None:
        self.system.revoke(self.targets[0])


class Compact(_EtcdFault):
    """History is forgotten, so that watches cannot resume from where they were."""

    name = "compact"
    reach = Reach.SERVERS

    def choose(self) -> tuple[str, ...]:
        self._revision = self.scene.compactable()
        return (f"revision {self._revision}",) if self._revision > 0 else ()

    def strike(self) -> None:
        self.system.compact(self._revision)
