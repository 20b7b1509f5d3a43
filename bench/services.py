"""The services that are measured: one server of each, on this machine, or a directory's files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from bench.contestants.contestant import SERVER
from coordlock.testing.frames import Framer, RawFrames
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.postgres_frames import PostgresFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.redis_frames import RedisFrames
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.etcd import EtcdServer
from testbed.servers.postgres import PostgresServer
from testbed.servers.redis import RedisServer
from testbed.servers.zookeeper import ZooKeeperServer

__all__ = ["CLUSTERS", "SERVERS", "Service", "messages", "service"]

#: Those that a cluster keeps.
CLUSTERS = ("zookeeper", "etcd")
#: Those with a server.
SERVERS = (*CLUSTERS, "redis", "postgresql")

_HEARTBEATS = frozenset({"ping", "PING", "heartbeat", "LeaseKeepAlive", "Status"})


def messages(counted: Mapping[str, int]) -> int:
    """How many messages there were of all kinds, without heartbeats."""
    return sum(n for kind, n in counted.items() if kind not in _HEARTBEATS)


@dataclass(frozen=True)
class Service:
    """What is measured: its scheme and where it is, and of a server, how its messages are cut."""

    name: str
    #: ``host:port``, or a directory.
    address: str
    pid: int = 0
    framer: Callable[[], Framer] = RawFrames

    def url(self, root: str = "/bench", ttl: float = 60.0) -> str:
        """What coordlock connects to."""
        server = f"{self.name}://{self.address}"
        if self.name == "postgresql":
            server = SERVER.format(self.address)
        # Redis was just started.
        fresh = "&restart_delay=0" if self.name == "redis" else ""
        return f"{server}{root}?ttl={ttl:g}s{fresh}"

    def proxy(self) -> FaultProxy:
        """A proxy before it, which counts and delays."""
        host, _, port = self.address.rpartition(":")
        return FaultProxy(host, int(port), self.framer)

    def behind(self, proxy: FaultProxy) -> Self:
        """The same service, through the proxy."""
        return replace(self, address=f"{proxy.host}:{proxy.port}")


@contextmanager
def service(name: str) -> Iterator[Service]:
    """A new service called ``name``, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory:
        if name == "etcd":
            with EtcdServer(Path(directory)) as etcd:
                yield Service(name, f"{etcd.host}:{etcd.port}", etcd.pid, GrpcFrames)
        elif name == "redis":
            with RedisServer(Path(directory)) as redis:
                yield Service(name, f"{redis.host}:{redis.port}", redis.pid, RedisFrames)
        elif name == "postgresql":
            with PostgresServer(Path(directory), durable=True) as postgresql:
                postgresql.set_up()
                address = f"{postgresql.host}:{postgresql.port}"
                yield Service(name, address, postgresql.pid, PostgresFrames)
        elif name == "zookeeper":
            # Empty queues are removed as seldom as by default: once a minute.
            with ZooKeeperServer(Path(directory), container_check=60_000) as zookeeper:
                address = f"{zookeeper.host}:{zookeeper.port}"
                yield Service(name, address, zookeeper.pid, ZooKeeperFrames)
        else:
            yield Service(name, directory)
