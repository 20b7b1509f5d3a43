"""Redis servers: one node, and clusters."""

from __future__ import annotations

import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import redis
import redis.asyncio

from coordlock.testing.waiting import eventually
from testbed.servers.cluster import start_together
from testbed.servers.endpoint import Endpoint
from testbed.servers.ports import free_port
from testbed.servers.process import ServerProcess

__all__ = ["ExternalRedis", "Redis", "RedisCluster", "RedisServer", "redis_is_installed"]

SLOTS: Final = 16384


def redis_is_installed() -> bool:
    """Whether the server is on the path."""
    return shutil.which("redis-server") is not None


class Redis(ABC):
    """What tests ask of a Redis, whoever started it."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, for redis-py."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it is, for coordlock. Tests do not wait after the server's start."""
        return replace(Endpoint.parse(self.url), options={"restart_delay": "0"})

    def url_for(self, root: str = "", **options: object) -> str:
        """The URL for ``coordlock.connect``, with a root and options."""
        return self.endpoint.url(root, **options)

    @property
    def host(self) -> str:
        """The host."""
        return self.endpoint.hosts[0].rpartition(":")[0]

    @property
    def port(self) -> int:
        """The port."""
        return int(self.endpoint.hosts[0].rpartition(":")[2])

    def client(self, **options: Any) -> redis.Redis:
        """A client, which sends nothing twice; the caller closes it."""
        return redis.Redis.from_url(self.url, **options)

    def async_client(self, **options: Any) -> redis.asyncio.Redis:
        """The same for asyncio."""
        return redis.asyncio.Redis.from_url(self.url, **options)

    @contextmanager
    def keyspace(self) -> Iterator[str]:
        """A prefix that nobody else uses; the keys that begin with it are deleted at the end."""
        prefix = f"t-{uuid.uuid4().hex[:12]}:"
        yield prefix
        with self.client() as client:
            for key in client.scan_iter(match=f"{prefix}*"):
                client.delete(key)


class ExternalRedis(Redis):
    """A Redis that somebody else runs; tests that stop one start their own."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        return self._url


class RedisServer(Redis, ServerProcess):
    """One Redis node.

    Args:
        directory: for its data and log.
        persistent: keep the data over restarts.
        clustered: be a node of a cluster.
    """

    def __init__(
        self, directory: Path, *, persistent: bool = False, clustered: bool = False
    ) -> None:
        self._persistent = persistent
        self._clustered = clustered
        super().__init__(directory)

    def choose_ports(self) -> None:
        self._port, self.bus_port = free_port(), free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}"

    def command(self) -> list[str]:
        self.data.mkdir(exist_ok=True)
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port)]
        command += ["--dir", str(self.data), "--save", ""]
        if self._persistent:
            command += ["--appendonly", "yes"]
        if self._clustered:
            command += ["--cluster-enabled", "yes", "--cluster-port", str(self.bus_port)]
        return command

    def answers(self) -> bool:
        # It is this server that answers, and not another one that had taken the port.
        try:
            with self.client(socket_timeout=1, decode_responses=True) as client:
                return bool(client.config_get("dir") == {"dir": str(self.data.resolve())})
        except redis.RedisError:
            return False


class RedisCluster:
    """A Redis Cluster on this machine, the slots in equal shares on ``members``; no replicas."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        self.members = [
            RedisServer(directory / f"member{number}", clustered=True) for number in range(size)
        ]

    @property
    def url(self) -> str:
        """Where the first member is."""
        return self.members[0].url

    def _divide_slots(self) -> None:
        first = self.members[0]
        shares = [SLOTS * number // len(self.members) for number in range(len(self.members) + 1)]
        for member, start, end in zip(self.members, shares, shares[1:], strict=False):
            with member.client() as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", start, end - 1)
                if member is not first:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", first.port, first.bus_port)
        eventually(lambda: all(map(_is_complete, self.members)), "all members to know all slots")

    def __enter__(self) -> Self:
        start_together(self.members, lambda: None)
        try:
            self._divide_slots()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()


def _is_complete(member: RedisServer) -> bool:
    with member.client(decode_responses=True) as client:
        return bool(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
