"""Three nodes of ZooKeeper under the nemesis."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from coordlock_faults.journal import Journal
from coordlock_zookeeper.nodes import sequence_of
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError, NotEmptyError
from kazoo.handlers.threading import KazooTimeoutError

from testbed.network.election_frames import ElectionFrames
from testbed.servers.zookeeper import ZooKeeperServer, children
from testbed.systems.system import System, Uncertain
from testbed.systems.wall_clocks import WallClock
from testbed.truth.observer import Observer
from testbed.truth.zookeeper import ZooKeeperObserver

__all__ = ["ZooKeeperSystem"]


class _Node(ZooKeeperServer):
    """Gives up a leader, or its lead, after 2 s without a word; so faults need not be longer."""

    clock: WallClock

    def command(self) -> list[str]:
        clock = (f"{name}={value}" for name, value in self.clock.environment.items())
        return ["env", *clock, *super().command()]

    def _configuration(self) -> dict[str, object]:
        return super()._configuration() | {"initLimit": 15, "syncLimit": 10}

    def choose_ports(self) -> None:
        super().choose_ports()
        self.ports = self._peer_port, self._election_port


class ZooKeeperSystem(System):
    """Each node's quorum, election and client port has a relay."""

    name = "zookeeper"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.nodes: dict[str, _Node] = {n: _Node(directory / n) for n in ("n1", "n2", "n3")}
        for name, node in self.nodes.items():
            node.clock = self.clocks.clock(name)

    def _address(self, name: str) -> str:
        return self.nodes[name].endpoint.hosts[0]

    def _configure(self) -> None:
        # Relays of a start that failed, because a port was taken, stay until the end, unused.
        elections: dict[int, str] = {}
        addresses: dict[int, str] = {}
        for number, (name, node) in enumerate(self.nodes.items(), 1):
            quorum_port, election_port = node.ports
            # Followers try again where a new leader refuses, because it does not listen yet.
            quorum = self.network.link(name, quorum_port, patience=1.0)
            election = self.network.link(name, election_port, lambda: ElectionFrames(elections))
            elections[number] = f"127.0.0.1:{election}"
            addresses[number] = f"127.0.0.1:{quorum}:{election}"
            self._ports[name] = self.network.link(name, node.port)
        for number, node in enumerate(self.nodes.values(), 1):
            # A server listens where it says that it is, and dials where it says that others are.
            node.number, node.ensemble = number, addresses | {number: node.address}

    def versions(self) -> dict[str, str]:
        found = re.search(r"version: ([\d.]+)", self.nodes["n1"].four_letters("srvr"))
        return {"zookeeper": found[1] if found else "unknown"}

    def truth(self, root: str, journal: Journal) -> Observer:
        return ZooKeeperObserver(list(self.nodes.values()), root, journal)

    def leader(self) -> str | None:
        leads: list[tuple[int, str]] = []
        for name, words in self._words("srvr").items():
            zxid = re.search(r"^Zxid: (0x[0-9a-f]+)$", words, re.MULTILINE)
            if zxid and "Mode: leader" in words:
                leads.append((int(zxid[1], 16) >> 32, name))
        return max(leads)[1] if leads else None

    def is_well(self) -> bool:
        words = list(self._words("mntr").values())
        return (
            sum("zk_server_state\tfollower" in one for one in words) == len(self.nodes) - 1
            # Only the leader says so.
            and any(f"zk_synced_followers\t{len(self.nodes) - 1}\n" in one for one in words)
        )

    def _words(self, word: str) -> dict[str, str]:
        return {
            name: node.four_letters(word) for name, node in self.nodes.items() if node.is_running
        }

    # The operator.

    @contextmanager
    def _operator(self) -> Iterator[Any]:
        client = KazooClient(",".join(map(self._address, self.nodes)))
        try:
            client.start(timeout=10)
            yield client
        except (KazooException, KazooTimeoutError) as error:
            raise Uncertain(f"ZooKeeper: {error!r}") from error
        finally:
            client.stop()
            client.close()

    def queues(self, root: str) -> dict[str, list[str]]:
        with self._operator() as client:
            client.sync(root)
            queues = [f"{root}/{queue}" for queue in children(client, root)]
            return {
                queue: [f"{queue}/{one}" for one in found]
                for queue in queues
                if (found := [c for c in children(client, queue) if sequence_of(c) is not None])
            }

    def remove(self, keys: Collection[str]) -> None:
        with self._operator() as client:
            _remove(client, keys)

    def remove_queue(self, queue: str, keys: Collection[str]) -> bool:
        with self._operator() as client:
            _remove(client, keys)
            try:
                client.delete(queue)
            except NotEmptyError:
                return False
            except NoNodeError:  # its last one gone, the server reaps it, too
                pass
            return True


def _remove(client: Any, keys: Collection[str]) -> None:
    # One after the other without waiting, so that hardly anybody can come meanwhile.
    for deletion in [client.delete_async(key) for key in keys]:
        with suppress(NoNodeError):
            deletion.get(timeout=10)
