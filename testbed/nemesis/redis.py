"""What befalls a Redis besides: slow commands, forgotten scripts, lost connections, lost data."""

from __future__ import annotations

import shutil
from contextlib import suppress

import redis
from coordlock_faults.events import Reach

from testbed.nemesis.fault_maker import Area, FaultMaker
from testbed.nemesis.nodes import KillLeader
from testbed.systems.redis import RedisSystem

__all__ = ["FlushData", "FlushScripts", "KillConnections", "RestartEmpty", "SlowCommand"]

#: Redis does nothing else meanwhile, and after a while answers others that it is busy.
_SLOW = "local stop = os.clock() + ARGV[1] while os.clock() < stop do end"


class _Command(FaultMaker):
    """Something that the leader is told to do."""

    reach = Reach.SERVERS
    area = Area.SERVICE
    systems = frozenset({"redis", "redis-sentinel"})

    @property
    def system(self) -> RedisSystem:
        system = self.scene.system
        assert isinstance(system, RedisSystem)
        return system

    def tell(self, *command: str | float) -> None:
        """Have it do that; it may be killed meanwhile."""
        [name] = self.targets
        with (
            suppress(redis.RedisError),
            self.system.servers[name].client(socket_timeout=10) as client,
        ):
            client.execute_command(*command)


class SlowCommand(_Command):
    """One command takes long: for less or longer than a time-to-live, or than Sentinel waits."""

    name = "slow-command"

    def strike(self) -> None:
        seconds = self.random.choice([0.3, 0.8, 2.5])
        if self.random.random() < 0.5:
            self.tell("DEBUG", "SLEEP", seconds)
        else:
            self.tell("EVAL", _SLOW, 0, seconds)


class FlushScripts(_Command):
    """The server forgets all scripts."""

    name = "flush-scripts"

    def strike(self) -> None:
        self.tell("SCRIPT", "FLUSH")


class KillConnections(_Command):
    """The server closes the connections of all clients."""

    name = "kill-connections"

    def strike(self) -> None:
        for kind in self.random.sample(["normal", "pubsub"], self.random.choice([1, 2])):
            self.tell("CLIENT", "KILL", "TYPE", kind)


class FlushData(_Command):
    """All data are deleted, so that a client may be granted what another one has not lost yet."""

    name = "flush-data"
    reach = Reach.DATA
    loses_data = True

    def strike(self) -> None:
        self.tell("FLUSHALL")


class RestartEmpty(KillLeader):
    """The leader is killed, and comes back without its data, as one that has no file."""

    name = "restart-empty"
    systems = frozenset({"redis", "redis-sentinel"})
    lasts = ((0.0, 0.4),)
    loses_data = True

    def strike(self) -> None:
        super().strike()
        for name in self.targets:
            shutil.rmtree(self.system.nodes[name].data, ignore_errors=True)
