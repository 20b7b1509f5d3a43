"""The systems that are put under the nemesis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.faults.systems.etcd import EtcdSystem
from tests.faults.systems.system import System
from tests.faults.systems.zookeeper import ZooKeeperSystem

__all__ = ["SYSTEMS"]

#: By the names of their services.
SYSTEMS: Final[Mapping[str, type[System]]] = {
    system.name: system for system in (EtcdSystem, ZooKeeperSystem)
}
