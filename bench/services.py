"""The servers that are measured against: one of each, on this machine, for one run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.http_frames import HttpFrames
from coordlock.testing.frames import Framer
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.redis_frames import RedisFrames
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.etcd import EtcdServer
from testbed.servers.redis import RedisServer
from testbed.servers.zookeeper import ZooKeeperServer

__all__ = ["HEARTBEATS", "SERVICES", "Service", "service"]

SERVICES = ("zookeeper", "etcd")

#: Requests that are sent at intervals, whatever the locks do.
HEARTBEATS = frozenset({"ping", "LeaseKeepAlive", "keepalive", "Status"})


@dataclass(frozen=True)
class Service:
    """A running server: its scheme, where it is, and what its protocol is cut with."""

    name: str
    host: str
    port: int
    framer: Callable[[], Framer]
    pid: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def proxy(self, *, http: bool = False) -> FaultProxy:
        """A proxy before it, which counts and delays; ``http`` for who speaks that to etcd."""
        return FaultProxy(self.host, self.port, HttpFrames if http else self.framer)


@contextmanager
def service(name: str) -> Iterator[Service]:
    """A new server called ``name``, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory:
        if name == "etcd":
            with EtcdServer(Path(directory)) as etcd:
                yield Service(name, etcd.host, etcd.port, GrpcFrames, etcd.pid)
        elif name == "redis":
            with RedisServer(Path(directory)) as redis:
                yield Service(name, redis.host, redis.port, RedisFrames, redis.pid)
        else:
            # Empty queues are removed as seldom as by default: once a minute.
            with ZooKeeperServer(Path(directory), container_check=60_000) as zookeeper:
                yield Service(name, zookeeper.host, zookeeper.port, ZooKeeperFrames, zookeeper.pid)
