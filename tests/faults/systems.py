"""The systems that are put under the nemesis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.faults.etcd_system import EtcdSystem
from tests.faults.system import System
from tests.faults.zookeeper_system import ZooKeeperSystem

__all__ = ["SYSTEMS"]

#: By the names of their services.
SYSTEMS: Final[Mapping[str, type[System]]] = {
    system.name: system for system in (EtcdSystem, ZooKeeperSystem)
}
