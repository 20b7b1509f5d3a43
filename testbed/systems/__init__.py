"""The systems that are put under the nemesis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from testbed.systems.etcd import EtcdSystem
from testbed.systems.postgresql import PostgresqlStandbySystem, PostgresqlSystem
from testbed.systems.redis import RedisSentinelSystem, RedisSystem
from testbed.systems.system import System
from testbed.systems.zookeeper import ZooKeeperSystem

__all__ = ["SYSTEMS"]

#: By the names of their services.
SYSTEMS: Final[Mapping[str, type[System]]] = {
    system.name: system
    for system in (
        EtcdSystem,
        ZooKeeperSystem,
        PostgresqlSystem,
        PostgresqlStandbySystem,
        RedisSystem,
        RedisSentinelSystem,
    )
}
