"""What befalls a PostgreSQL besides: connections that an administrator ends, and failovers."""

from __future__ import annotations

import time
from contextlib import suppress

import psycopg
from coordlock_faults.events import Reach

from testbed.nemesis.fault_maker import Area, FaultMaker
from testbed.nemesis.nodes import KillLeader
from testbed.systems.postgresql import PostgresqlStandbySystem, PostgresqlSystem

__all__ = ["FailOver", "TerminateConnections"]

#: Of the connections of clients, which are terminated: all, those at work, those that listen.
_CHOICES = ("true", "state = 'active'", "query LIKE 'LISTEN%'", "random() < 0.2")


class TerminateConnections(FaultMaker):
    """An administrator terminates connections of clients, again and again."""

    name = "terminate-connections"
    reach = Reach.SERVERS
    area = Area.SERVICE
    systems = frozenset({"postgresql", "postgresql-standby"})

    @property
    def system(self) -> PostgresqlSystem:
        system = self.scene.system
        assert isinstance(system, PostgresqlSystem)
        return system

    def strike(self) -> None:
        [name] = self.targets
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE application_name = 'coordlock' AND {self.random.choice(_CHOICES)}"
        ).encode()
        end = time.monotonic() + self.random.uniform(0, 2)
        # It may be killed meanwhile.
        with suppress(psycopg.Error), self.system.servers[name].administrator() as admin:
            while time.monotonic() < end:
                admin.execute(query)
                time.sleep(self.random.uniform(0, 0.2))


class FailOver(KillLeader):
    """The primary is killed and the standby promoted; a new standby comes some time later."""

    name = "fail-over"
    lasts = ((0.5, 4.0),)
    systems = frozenset({"postgresql-standby"})
    loses_data = True

    @property
    def system(self) -> PostgresqlStandbySystem:
        system = self.scene.system
        assert isinstance(system, PostgresqlStandbySystem)
        return system

    def strike(self) -> None:
        self.system.fail_over(self.random.choice([0.0, self.random.uniform(0.1, 1.0)]))
