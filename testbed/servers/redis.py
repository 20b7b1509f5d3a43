"""Redis servers: one node, a Sentinel that watches one, and clusters."""

from __future__ import annotations

import re
import shutil
import subprocess
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Self

import redis
import redis.asyncio

from coordlock.testing.waiting import eventually
from testbed.servers.certificates import Certificates
from testbed.servers.cluster import Cluster
from testbed.servers.endpoint import Endpoint, Service
from testbed.servers.ports import free_port
from testbed.servers.process import ServerProcess

__all__ = [
    "ExternalRedis",
    "Redis",
    "RedisCluster",
    "RedisServer",
    "Redlock",
    "Sentinel",
    "debug_commands",
    "knows_tls",
    "redis_is_installed",
]

SLOTS: Final = 16384


def redis_is_installed() -> bool:
    """Whether the server is on the path."""
    return shutil.which("redis-server") is not None


@cache
def _version() -> tuple[int, ...]:
    told = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"v=(\d+)\.(\d+)", told.stdout)
    assert found is not None, told.stdout
    return tuple(map(int, found.groups()))


def debug_commands() -> list[str]:
    """The arguments that allow ``DEBUG``, which 6.2 does without any."""
    return ["--enable-debug-command", "local"] if _version() >= (7, 0) else []


@cache
def knows_tls() -> bool:
    """Whether the server was built with TLS."""
    # Without a certificate none starts, and one that knows TLS says why.
    command = ["redis-server", "--port", "0", "--tls-port", "1"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=10)
    return "Failed to configure TLS" in told.stdout


class Redis(Service):
    """What tests ask of a Redis, whoever started it."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, for redis-py."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it is, for coordlock. Tests do not wait after the server's start."""
        return replace(Endpoint.parse(self.url), options={"restart_delay": "0"})

    def client(self, **options: Any) -> redis.Redis:
        """A client, which sends nothing twice; the caller closes it."""
        return redis.Redis.from_url(self.url, **{"socket_timeout": 60, **options})

    def async_client(self, **options: Any) -> redis.asyncio.Redis:
        """The same for asyncio."""
        return redis.asyncio.Redis.from_url(self.url, **{"socket_timeout": 60, **options})

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
        tls: certificates to serve TLS with, on another port.
        arguments: further ones of ``redis-server``.
        environment: what is put into its environment.
    """

    def __init__(
        self,
        directory: Path,
        *,
        persistent: bool = False,
        clustered: bool = False,
        tls: Certificates | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._persistent = persistent
        self._clustered = clustered
        self._tls = tls
        self._arguments = arguments
        self._environment = environment or {}
        super().__init__(directory)

    def choose_ports(self) -> None:
        self._port, self.bus_port, self.tls_port = free_port(), free_port(), free_port()
        if self._clustered and _version() < (7, 0):  # the bus has no port of its own choice
            self.bus_port = self._port + 10_000

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}"

    def command(self) -> list[str]:
        self.data.mkdir(exist_ok=True)
        command = ["env", *(f"{name}={value}" for name, value in self._environment.items())]
        command += ["redis-server", *map(str, self._files()), "--bind", "127.0.0.1"]
        command += ["--port", str(self.port)]
        command += ["--dir", str(self.data), "--save", "", "--repl-diskless-sync-delay", "0"]
        if self._persistent:
            command += ["--appendonly", "yes"]
        if self._clustered:
            command += ["--cluster-enabled", "yes"]
            # A member that stood still for this long counts as failed for twice as long more.
            command += ["--cluster-node-timeout", "60000"]
            if _version() >= (7, 0):
                command += ["--cluster-port", str(self.bus_port)]
        if self._tls:
            command += ["--tls-port", str(self.tls_port), "--tls-ca-cert-file", str(self._tls.ca)]
            command += ["--tls-cert-file", str(self._tls.server)]
            command += ["--tls-key-file", str(self._tls.server_key), "--tls-auth-clients", "yes"]
        return [*command, *self._arguments]

    def _files(self) -> Sequence[Path]:
        """Configuration in files."""
        return ()

    def follow(self, primary: RedisServer) -> None:
        """Be a replica of ``primary``, and have its data."""
        with self.client(decode_responses=True) as client:
            client.replicaof(primary.host, primary.port)
            eventually(lambda: client.info("replication").get("master_link_status") == "up")

    def answers(self) -> bool:
        # It is this server that answers, and not another one that had taken the port.
        try:
            with self.client(socket_timeout=1, decode_responses=True) as client:
                return bool(client.config_get("dir") == {"dir": str(self.data.resolve())})
        except redis.RedisError:
            return False


class Sentinel(Service, ServerProcess):
    """A Sentinel that watches ``primary`` by the name of `NAME`, and decides alone.

    It keeps what it has found out over restarts.
    """

    NAME: Final = "main"

    def __init__(self, directory: Path, primary: Redis) -> None:
        self.primary = primary
        super().__init__(directory)

    def choose_ports(self) -> None:
        self._port = free_port()
        self.forget()

    def forget(self) -> None:
        """Begin with the primary at the next start."""
        self._file = self.directory / "sentinel.conf"
        self._file.unlink(missing_ok=True)

    @property
    def url(self) -> str:
        """Where it is, for redis-py."""
        return f"redis://127.0.0.1:{self._port}"

    @property
    def endpoint(self) -> Endpoint:
        own = {"restart_delay": "0", "sentinel": self.NAME}
        return replace(Endpoint.parse(self.url), options=own)

    def command(self) -> list[str]:
        if not self._file.exists():
            self._file.write_text(
                f"bind 127.0.0.1\nport {self.port}\n"
                f"sentinel monitor {self.NAME} {self.primary.host} {self.primary.port} 1\n"
                f"sentinel down-after-milliseconds {self.NAME} 500\n"
                f"sentinel failover-timeout {self.NAME} 3000\n"
            )
        return ["redis-server", str(self._file), "--sentinel"]

    def knows(self) -> dict[str, str]:
        """What it knows of the primary."""
        with redis.Redis.from_url(self.url, socket_timeout=30, decode_responses=True) as client:
            found = client.execute_command("SENTINEL", "MASTER", self.NAME)
            return dict(
                found if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
            )

    def answers(self) -> bool:
        try:
            return bool(self.knows())
        except redis.RedisError:
            return False


class Redlock(Cluster[RedisServer], Service):
    """Independent Redis nodes on this machine."""

    def __init__(self, directory: Path, size: int = 5) -> None:
        self.nodes = [RedisServer(directory / f"node{number}") for number in range(size)]
        self.members = self.nodes

    @property
    def endpoint(self) -> Endpoint:
        hosts = tuple(f"{node.host}:{node.port}" for node in self.nodes)
        return Endpoint("redlock", hosts, options={"restart_delay": "0"})


class RedisCluster(Cluster[RedisServer], Service):
    """A Redis Cluster on this machine, the slots in equal shares on ``members``; no replicas."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        self.members = [
            RedisServer(directory / f"member{number}", clustered=True) for number in range(size)
        ]

    @property
    def url(self) -> str:
        """Where the first member is."""
        return self.members[0].url

    @property
    def endpoint(self) -> Endpoint:
        hosts = tuple(f"{member.host}:{member.port}" for member in self.members)
        return Endpoint("redis", hosts, options={"restart_delay": "0"})

    def owner(self, key: str) -> RedisServer:
        """The member that has the slot of ``key``."""
        for member in self.members:
            with member.client() as client:
                try:
                    client.exists(key)
                except redis.exceptions.MovedError:
                    continue
                return member
        raise AssertionError(f"no member has {key}")

    def replicate(self, key: str, replica: RedisServer) -> None:
        """Let ``replica`` be one of the member that has the slot of ``key``."""
        owner = self.owner(key)
        with owner.client() as old, replica.client(decode_responses=True) as new:
            new.execute_command("CLUSTER MEET", owner.host, owner.port, owner.bus_port)
            old_id = _text(old.execute_command("CLUSTER MYID"))
            new_id = new.execute_command("CLUSTER MYID")
            eventually(lambda: old_id in str(new.execute_command("CLUSTER NODES")))
            new.execute_command("CLUSTER REPLICATE", old_id)
            eventually(lambda: new.info("replication").get("master_link_status") == "up")
        for member in self.members:
            with member.client() as client:
                eventually(partial(_knows, client, new_id))

    def move(self, key: str, target: RedisServer) -> Iterator[None]:
        """Move the slot of ``key``; a step at each ``next``: begun, a key moved, the rest moved."""
        source = self.owner(key)
        with source.client() as old, target.client() as new:
            slot = old.execute_command("CLUSTER KEYSLOT", key)
            old_id, new_id = (_text(one.execute_command("CLUSTER MYID")) for one in (old, new))
            new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", old_id)
            old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", new_id)
            yield
            while keys := old.execute_command("CLUSTER GETKEYSINSLOT", slot, 1):
                old.execute_command("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", *keys)
                yield
            for member in self.members:
                with member.client() as client:
                    client.execute_command("CLUSTER SETSLOT", slot, "NODE", new_id)

    def _divide_slots(self) -> None:
        first = self.members[0]
        shares = [SLOTS * number // len(self.members) for number in range(len(self.members) + 1)]
        for member, start, end in zip(self.members, shares, shares[1:], strict=False):
            with member.client() as client:
                client.execute_command("CLUSTER ADDSLOTS", *range(start, end))

        def have_met() -> bool:
            for member in self.members[1:]:
                if not _is_complete(member):
                    # Again: a handshake that a busy machine interrupts is forgotten.
                    with member.client() as client:
                        client.execute_command(
                            "CLUSTER MEET", "127.0.0.1", first.port, first.bus_port
                        )
            return all(map(_is_complete, self.members))

        eventually(have_met, "all members to know all slots", within=60)

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._divide_slots()
        except BaseException:
            self.__exit__()
            raise
        return self


def _text(answer: bytes | str) -> str:
    return answer.decode() if isinstance(answer, bytes) else answer


def _knows(client: Any, id: str) -> bool:
    return id in str(client.execute_command("CLUSTER NODES"))


def _is_complete(member: RedisServer) -> bool:
    with member.client(decode_responses=True) as client:
        return bool(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
