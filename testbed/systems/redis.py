"""Redis under the nemesis: one server, and a primary with a replica and a Sentinel."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import ClassVar, Final, NoReturn

import redis
from coordlock_faults.events import FaultBegan, FaultHealed, Reach
from coordlock_faults.journal import Journal

from testbed.servers.endpoint import Endpoint
from testbed.servers.process import ServerProcess
from testbed.servers.redis import ExternalRedis, RedisServer, Sentinel, debug_commands
from testbed.systems.system import System

__all__ = ["RedisSentinelSystem", "RedisSystem"]

#: Seconds between two looks at who is a primary, and for which a server that stands still has one.
_LOOK: Final = 0.02
_PATIENCE: Final = 0.2


class _Node(RedisServer):
    """Keeps its data, and its configuration in a file, into which Sentinel writes its role."""

    announced = 0

    def configure(self, announced: int, primary: int | None) -> None:
        """Be reached at the port ``announced``, and follow the ``primary`` at that port."""
        self.announced = announced
        replicaof = "" if primary is None else f"replicaof 127.0.0.1 {primary}\n"
        self._files()[0].write_text(replicaof)

    def _files(self) -> list[Path]:
        return [self.directory / "redis.conf"]

    def command(self) -> list[str]:
        # By the old name, which all releases know: others are told after so long that it is busy.
        return [
            *super().command(),
            *("--appendfsync", "always"),
            *("--replica-announce-ip", "127.0.0.1"),
            *("--replica-announce-port", str(self.announced)),
            *("--lua-time-limit", "300", *debug_commands()),
        ]


class RedisSystem(System):
    """One server, which writes all that it does to a file. Its port has a relay."""

    name = "redis"
    size: ClassVar[int] = 1
    nodes: dict[str, ServerProcess]

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        names = [f"n{number}" for number in range(1, min(self.size, 2) + 1)]
        self.servers: Final = {name: _Node(directory / name, persistent=True) for name in names}
        self.nodes = dict(self.servers)

    def _url(self, port: int, root: str, options: dict[str, object]) -> str:
        return Endpoint("redis", (f"127.0.0.1:{port}",)).url(root, **options)

    def url(self, root: str, **options: object) -> str:
        return self._url(self._ports["n1"], root, options)

    def direct_url(self, root: str, **options: object) -> str:
        return self._url(self.servers[self.leader() or "n1"].port, root, options)

    def _address(self, name: str) -> str:
        return f"127.0.0.1:{self.servers[name].port}"

    def _configure(self) -> None:
        # Relays of a start that failed, because a port was taken, stay until the end, unused.
        for name, node in self.servers.items():
            self._ports[name] = self.network.link(name, node.port)
            node.configure(self._ports[name], None if name == "n1" else self._ports["n1"])

    def versions(self) -> dict[str, str]:
        with self.servers["n1"].client(decode_responses=True) as client:
            server = client.info("server")
        if "valkey_version" in server:
            return {"valkey": server["valkey_version"]}
        return {"redis": server["redis_version"]}

    def leader(self) -> str | None:
        return "n1" if self.nodes["n1"].is_running else None

    def is_well(self) -> bool:
        return all(node.is_running and node.answers() for node in self.nodes.values())

    # There are no tools to remove a contender with.

    def queues(self, root: str) -> NoReturn:
        raise NotImplementedError

    def remove(self, keys: Collection[str]) -> NoReturn:
        raise NotImplementedError

    def remove_queue(self, queue: str, keys: Collection[str]) -> NoReturn:
        raise NotImplementedError


class RedisSentinelSystem(RedisSystem):
    """A primary and a replica, n1 and n2 at first, and the Sentinel n3. Each port has a relay.

    A failover loses what the replica lacks. While the earlier primary takes itself for one,
    which it does until Sentinel tells it after eight seconds, clients that still reach it go on
    there: `watched` logs these times as lost data.
    """

    name = "redis-sentinel"
    size = 3
    keeps_data = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.sentinel: Final = Sentinel(directory / "n3", self.servers["n1"])
        self.nodes["n3"] = self.sentinel

    def url(self, root: str, **options: object) -> str:
        return self._url(self._ports["n3"], root, {"sentinel": Sentinel.NAME, **options})

    def _address(self, name: str) -> str:
        return f"127.0.0.1:{self.sentinel.port}" if name == "n3" else super()._address(name)

    def _configure(self) -> None:
        super()._configure()
        self._ports["n3"] = self.network.link("n3", self.sentinel.port)
        self.sentinel.primary = ExternalRedis(f"redis://127.0.0.1:{self._ports['n1']}")
        self.sentinel.forget()

    def _roles(self) -> dict[str, bool | None]:
        """Whether each server is a primary; None where it does not say so in time."""
        return {name: _is_primary(node) for name, node in self.servers.items()}

    def _named(self) -> str | None:
        """The node that Sentinel names."""
        try:
            port = int(self.sentinel.knows()["port"])
        except redis.RedisError:
            return None
        return next((name for name in self.servers if self._ports[name] == port), None)

    def leader(self) -> str | None:
        primaries = [name for name, is_primary in self._roles().items() if is_primary]
        if len(primaries) > 1 and (named := self._named()) in primaries:
            return named
        return primaries[0] if primaries else None

    def is_well(self) -> bool:
        if not super().is_well() or sum(map(bool, self._roles().values())) != 1:
            return False
        leader = self.leader()
        replica = next(name for name in self.servers if name != leader)
        try:
            known = self.sentinel.knows()
            with self.servers[replica].client(decode_responses=True) as client:
                link = client.info("replication").get("master_link_status")
        except redis.RedisError:
            return False
        replicas = int(known["num-slaves"])
        return (
            link == "up"
            and self._named() == leader
            and known["flags"] == "master"
            and replicas == len(self.servers) - 1
        )

    @contextmanager
    def watched(self, journal: Journal) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(journal, ended), name="primaries")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _watch(self, journal: Journal, ended: threading.Event) -> None:
        primaries: dict[str, bool] = {}
        numbers = count(1)
        fault = ""
        while not ended.wait(_LOOK):
            for name, is_primary in self._roles().items():
                # One that stands still takes itself for what it was.
                if is_primary is not None or not self.nodes[name].is_running:
                    primaries[name] = bool(is_primary)
            if sum(primaries.values()) > 1 and not fault:
                fault = f"two-primaries-{next(numbers)}"
                journal.log(FaultBegan, fault, "two-primaries", Reach.DATA, tuple(self.servers))
            elif sum(primaries.values()) < 2 and fault:
                journal.log(FaultHealed, fault)
                fault = ""
        if fault:
            journal.log(FaultHealed, fault)


def _is_primary(node: RedisServer) -> bool | None:
    """None where it does not say so in time."""
    try:
        with node.client(socket_timeout=_PATIENCE, decode_responses=True) as client:
            return bool(client.execute_command("ROLE")[0] == "master")
    except redis.RedisError:
        return None
